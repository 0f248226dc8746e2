package shard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/shard/internal/rendezvous"
)

// JoinOptions identify this process within a job. Fields that are not set come from the environment of `warpmap launch`
// and torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), of Open MPI (OMPI_COMM_WORLD_RANK, _SIZE and
// _LOCAL_RANK), of Slurm (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID) or of an indexed Job of Kubernetes
// (JOB_COMPLETION_INDEX instead of RANK).
type JoinOptions struct {
	Rank, Size int    // if Size is 0, rank, size and local rank come from the environment
	Local      int    // the rank among the processes of this host
	Meet       string // host:port, where rank 0 listens for the others
	// Token is a secret of the job's ranks, which keeps others out of the job. If it is not set, it comes from
	// WARPMAP_TOKEN. At loopback addresses the name that torchrun or Slurm gave the job will do, or no token at all.
	// The package's documentation says what is protected.
	Token string
	// Device is this member's device. If it is nil, Join opens cuda:Local, and Close closes it with the member.
	Device *device.Device
	// Timeout limits the time until all members have joined. 0 means two minutes.
	Timeout time.Duration
}

// Member is this process as a member of a job. Tables that are made over a Member are over all members: see Map.
type Member struct {
	rank, size int
	d          *device.Device
	opened     bool // the device, by Join
	meeting    *rendezvous.Meeting
	comm       *nccl.Comm
	stop       chan struct{}
	wg         sync.WaitGroup
	over       sync.Once
	turn       sync.Mutex // held through a collective call: others would take what is said in it for theirs
	tables     int        // that were made
}

// Join makes this process a member of its job. It meets the others at rank 0 over TCP, and makes an NCCL communicator
// with them. If a rank's process ends before all have come, that rank may come again.
//
// NCCL is libnccl.so.2, 2.18 or newer, or the library that WARPMAP_LIBNCCL names. NVLink multicast stays off unless
// NCCL_NVLS_ENABLE says otherwise.
//
// Errors: an environment that says too little; a token that is no secret, where other hosts could come; no NCCL; a rank
// that did not come in time (the error names it); the context's error; a member that is gone meanwhile (the error names
// its rank).
func Join(ctx context.Context, o JoinOptions) (m *Member, err error) {
	if err := o.complete(os.Getenv); err != nil {
		return nil, err
	}
	lib, err := nccl.Open()
	if err != nil {
		return nil, err
	}
	m = &Member{rank: o.Rank, size: o.Size, d: o.Device, stop: make(chan struct{})}
	if m.d == nil {
		if m.d, err = device.Open(fmt.Sprintf("cuda:%d", o.Local)); err != nil {
			return nil, err
		}
		m.opened = true
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(o.Timeout, 2*time.Minute))
	defer cancel()
	at := rendezvous.Options{Rank: o.Rank, Size: o.Size, Addr: o.Meet, Token: o.Token,
		Public: public(o.Token, os.Getenv)}
	if m.meeting, err = rendezvous.Meet(ctx, at); err == nil {
		err = m.connect(ctx, lib)
	}
	if err != nil {
		return nil, errors.Join(m.named(err), m.leave(err))
	}
	m.wg.Add(1)
	crash.Go(m.watch)
	return m, nil
}

// connect makes the communicator.
func (m *Member) connect(ctx context.Context, lib *nccl.NCCL) error {
	var id nccl.ID
	var own []byte
	if m.rank == 0 {
		var err error
		if id, err = lib.GetUniqueID(); err != nil {
			return err
		}
		own = id[:]
	}
	all, err := m.meeting.Agree(own)
	if err != nil {
		return err
	}
	if copy(id[:], all[0]) != len(id) {
		return fmt.Errorf("rank 0 gave an id of %d bytes (want %d): do all run the same program?", len(all[0]), len(id))
	}
	if err := m.d.Current(func() (err error) { m.comm, err = lib.Init(m.size, m.rank, id); return err }); err != nil {
		return err
	}
	m.comm.Failing = m.failing
	give := make(chan struct{})
	done := make(chan struct{})
	defer close(done)
	crash.Go(func() {
		select {
		case <-m.meeting.Broken():
		case <-ctx.Done():
		case <-done:
			return
		}
		close(give)
	})
	if err := m.comm.Wait(give); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	_, err = m.meeting.Agree(nil) // all have it
	return err
}

// watch ends all that waits for a member that is gone.
func (m *Member) watch() {
	defer m.wg.Done()
	select {
	case <-m.meeting.Broken():
		m.comm.Abort()
	case <-m.stop:
	}
}

// failing has the others hear of an error of this member's communicator before that is aborted, which they would take
// for the first that happened.
func (m *Member) failing(err error) {
	if !ofOthers(err) && m.meeting.Err() == nil {
		m.meeting.Fail(err.Error())
	}
}

// ofOthers tells whether an error of the communicator may come of another member.
func ofOthers(err error) bool {
	failed := (*nccl.Error)(nil)
	return errors.Is(err, nccl.ErrAborted) || errors.As(err, &failed) && failed.OfOthers()
}

// named puts who is gone in place of an error that comes of it: the communicator may notice first, and does not know
// names. Where all say that they are there, none is gone.
func (m *Member) named(err error) error {
	if err == nil || m.meeting == nil || errors.As(err, new(*rendezvous.GoneError)) {
		return err
	}
	if ofOthers(err) {
		m.meeting.AllThere(rendezvous.Patience + time.Second) // within which one that does not answer is gone
	}
	if gone := (*rendezvous.GoneError)(nil); errors.As(m.meeting.Err(), &gone) && gone.Rank != m.rank {
		return fmt.Errorf("%s: %w", family, gone)
	}
	return err
}

// leave ends the membership, after an error so that the others hear of it. Otherwise it says first that this member
// leaves: a member that still wants it gets an error then, which ends all that waits here. The communicator is
// destroyed if all leave, which they do together. It is aborted if not, once nobody is in a call any more.
func (m *Member) leave(why error) (err error) {
	m.over.Do(func() {
		if m.meeting != nil && why != nil {
			m.meeting.Fail(why.Error())
		}
		stuck := false
		if m.comm != nil && why == nil && m.meeting.Part() {
			err, stuck = m.destroy()
		}
		close(m.stop)
		if !stuck {
			m.wg.Wait()
			if m.comm != nil {
				err = errors.Join(err, m.comm.Abort()) // does nothing if it is destroyed
			}
		}
		if m.meeting != nil {
			m.meeting.Close()
		}
		if m.opened && !stuck {
			err = errors.Join(err, m.d.Close())
		}
	})
	return err
}

// destroy destroys the communicator. All others do so, too, unless they end before: they have rendezvous.Silence. If
// stuck is true, NCCL still waits for one of them, and has the communicator and the device.
func (m *Member) destroy() (err error, stuck bool) {
	give, destroyed := make(chan struct{}), make(chan error, 1)
	crash.Go(func() {
		destroyed <- m.d.Current(func() error { return m.comm.Destroy(give) })
	})
	late := time.NewTimer(rendezvous.Silence)
	defer late.Stop()
	select {
	case err := <-destroyed:
		return err, false
	case <-m.meeting.Broken():
	case <-late.C:
	}
	close(give)
	select {
	case err := <-destroyed:
		return err, false
	case <-time.After(rendezvous.Silence):
		return fmt.Errorf("%s: NCCL waits for another member, which has stopped while all left the job", family), true
	}
}

// begin waits for this member's turn to make a collective call. The members that leave wait for its end.
func (m *Member) begin() {
	m.turn.Lock()
	m.meeting.Enter()
}

// end ends a collective call.
func (m *Member) end() {
	m.meeting.Exit()
	m.turn.Unlock()
}

// Rank is this member's number, from 0 on.
func (m *Member) Rank() int { return m.rank }

// Size is the number of members.
func (m *Member) Size() int { return m.size }

// Device is this member's device.
func (m *Member) Device() *device.Device { return m.d }

// Close leaves the job. Call it when all tables of the member are closed. Close is not collective: it waits until other
// members have ended the calls that they are in, and a second longer for them to leave, too. A call that another member
// makes afterwards returns an error that names this one. A second call of Close does nothing.
//
// If a call of this member is under way, Close ends that call, and all members get an error that says so.
func (m *Member) Close() error {
	if m.stop == nil {
		return nil
	}
	if !m.turn.TryLock() {
		return m.leave(errors.New("it was closed in the middle of a call"))
	}
	defer m.turn.Unlock()
	return m.leave(nil)
}

// agree gives everybody's x, in the order of ranks.
func agree[T any](m *Member, x T) ([]T, error) {
	body, err := encoded(x)
	if err != nil {
		return nil, err
	}
	all, err := m.meeting.Agree(body)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", family, err)
	}
	out := make([]T, len(all))
	for rank, b := range all {
		if out[rank], err = decoded[T](rank, b); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func encoded[T any](x T) ([]byte, error) {
	var body bytes.Buffer
	err := gob.NewEncoder(&body).Encode(x)
	return body.Bytes(), err
}

func decoded[T any](rank int, body []byte) (x T, err error) {
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(&x); err != nil {
		return x, fmt.Errorf("%s: rank %d says what this one cannot read (do all run the same program?): %w", family,
			rank, err)
	}
	return x, nil
}

// launchers has the names of the variables for rank, size and local rank that each launcher sets. The first entry whose
// rank and size are set counts.
var launchers = [][3]string{
	{"RANK", "WORLD_SIZE", "LOCAL_RANK"},
	{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
	{"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
	{"JOB_COMPLETION_INDEX", "WORLD_SIZE", "LOCAL_RANK"}, // an indexed Job of Kubernetes, which sets only the first
}

// complete takes what is not set from the environment.
func (o *JoinOptions) complete(env func(string) string) error {
	if o.Size == 0 {
		for _, names := range launchers {
			if env(names[0]) == "" || env(names[1]) == "" {
				continue
			}
			for i, to := range []*int{&o.Rank, &o.Size, &o.Local} {
				text := cmp.Or(env(names[i]), "0")
				n, err := strconv.Atoi(text)
				if err != nil || n < 0 {
					return fmt.Errorf("%s: the environment's %s is %q: want a number", family, names[i], text)
				}
				*to = n
			}
			break
		}
	}
	if o.Size == 0 {
		return fmt.Errorf("%s: which member this process is is not known: set JoinOptions.Rank and Size, or start it "+
			"by `warpmap launch`, torchrun, mpirun, srun or an indexed Job of Kubernetes (RANK and WORLD_SIZE)", family)
	}
	if o.Size > MaxDevices {
		return fmt.Errorf("%s: %d members (want %d at most)", family, o.Size, MaxDevices)
	}
	o.Token = cmp.Or(o.Token, env("WARPMAP_TOKEN"), env("TORCHELASTIC_RUN_ID"), env("SLURM_JOB_ID"))
	if o.Meet == "" {
		return o.meet(env)
	}
	return nil
}

// public says why a token is no secret; nothing, where it is one or there is none.
func public(token string, env func(string) string) string {
	switch token {
	case "":
		return ""
	case env("SLURM_JOB_ID"):
		return "the job's token is Slurm's number of it, which is no secret"
	case env("TORCHELASTIC_RUN_ID"):
		if len(token) == 36 && strings.Count(token, "-") == 4 { // torchrun made it at random
			return ""
		}
		return fmt.Sprintf("the job's token is torchrun's name of it, %q, which is no secret", token)
	}
	return ""
}

// meet finds where rank 0 listens.
func (o *JoinOptions) meet(env func(string) string) error {
	host, port := env("MASTER_ADDR"), env("MASTER_PORT")
	if host == "" {
		host, _, _ = strings.Cut(env("SLURM_LAUNCH_NODE_IPADDR"), ",")
	}
	if port == "" && env("SLURM_JOB_ID") != "" {
		if id, err := strconv.Atoi(env("SLURM_JOB_ID")); err == nil {
			port = strconv.Itoa(20000 + id%20000)
		}
	}
	if o.Size == 1 && (host == "" || port == "") {
		host, port = "127.0.0.1", "0" // nobody comes
	}
	if host == "" || port == "" {
		return fmt.Errorf("%s: where rank 0 listens is not known: set JoinOptions.Meet, or MASTER_ADDR and MASTER_PORT",
			family)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65534 {
		return fmt.Errorf("%s: MASTER_PORT %q: want a port", family, port)
	}
	if env("TORCHELASTIC_USE_AGENT_STORE") == "True" {
		n++ // torchrun itself listens at its port
	}
	o.Meet = net.JoinHostPort(host, strconv.Itoa(n))
	return nil
}
