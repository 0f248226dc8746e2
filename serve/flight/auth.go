package flight

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"strings"

	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// admit refuses strangers before anything of their messages is kept.
func (s *Server) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	select {
	case <-s.ending:
		return nil, errEnds
	default:
	}
	if s.o.Token == "" || s.knows(info.Header.Get("authorization")) {
		return ctx, nil
	}
	s.metrics.strangers.Add(1)
	return nil, status.Error(codes.Unauthenticated, "want the server's token, as authorization: Bearer, or its "+
		"password, as authorization: Basic")
}

// knows tells whether headers have the token or the password.
func (s *Server) knows(headers []string) bool {
	for _, h := range headers {
		kind, value, _ := strings.Cut(h, " ")
		switch strings.ToLower(kind) {
		case "bearer":
			if same(value, s.o.Token) || same(value, s.session) {
				return true
			}
		case "basic":
			// Some clients leave the '=' at the end out.
			text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
			_, password, is := strings.Cut(string(text), ":")
			if err == nil && is && same(password, s.o.Token) {
				return true
			}
		}
	}
	return false
}

// same compares texts in a time that does not depend on where they differ.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// Handshake gives a token to who has said the password in a header, as authenticate_basic_token of clients does.
func (s *Server) Handshake(stream wire.FlightService_HandshakeServer) error {
	return s.do(stream.Context(), "Handshake", func(*call) error {
		if s.o.Token == "" {
			return nil
		}
		return stream.SendHeader(metadata.Pairs("authorization", "Bearer "+s.session))
	})
}
