package inflate

import "errors"

// Whole unpacks deflate data that is there as a whole. The zero value is good, and can be used again and again; memory:
// 25 KiB.
type Whole struct{ d decoder }

// Slack is room behind a text, of which the fast loops make use.
const Slack = turnOut

// ErrLength is the error of data whose text is not as long as it was said to be, or that ends elsewhere.
var ErrLength = errors.New("the text is not as long as it should be")

// Unpack unpacks in, which is all data of a member, to the beginning of text, of which all but the last Slack bytes
// must be the text then. Behind them anything may stand. Errors: ErrLength; flate.CorruptInputError.
func (w *Whole) Unpack(text, in []byte) error {
	w.d.reset(in, 0)
	p, why := 0, atBlock
	for why == atBlock {
		p, why = w.d.bytes(text, p, 0)
	}
	if why == corrupt {
		return errAt(int64(w.d.wrong))
	}
	if why != atEnd || p != len(text)-Slack || w.d.bit != 8*len(in) {
		return ErrLength
	}
	return nil
}
