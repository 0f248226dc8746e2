package genome

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/internal/files"
)

// InputError tells what is wrong with an input, and where.
type InputError struct {
	Input string
	Line  int64 // the first is 1; 0 if the error concerns the whole input
	Err   error
}

func (e *InputError) Error() string {
	err := e.Err
	if of := (*fs.PathError)(nil); errors.As(err, &of) && of.Path == e.Input {
		err = of.Err
	}
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Input, err)
	}
	return fmt.Sprintf("%s:%d: %v", e.Input, e.Line, err)
}

func (e *InputError) Unwrap() error { return e.Err }

// OptionError is an error of options: a value that is out of range, or a bound of memory that is too small to work in.
type OptionError struct{ Err error }

func (e *OptionError) Error() string { return e.Err.Error() }
func (e *OptionError) Unwrap() error { return e.Err }

// suffixes are the endings of the files that are read of a folder, without that of a packing.
var suffixes = []string{".fa", ".fasta", ".fna", ".ffn", ".frn", ".fas", ".fsa", ".fq", ".fastq"}

// Expand gives the files that inputs name. An input is a file, "-" for standard input, a pattern (with ** for folders
// within folders), or a folder. A folder stands for the files below it whose names end as those of sequence files do
// (.fa, .fasta, .fna, .fq, .fastq and the like, also followed by .gz or .zst). The files of a pattern or folder come in
// the order of their names; names that begin with a dot are passed over. Errors: *InputError for an input that names
// nothing; *OptionError for standard input or a pipe that is given twice.
func Expand(inputs []string) (all []string, err error) {
	for _, input := range inputs {
		found, as, err := files.Expand(input, ".", ofSequences)
		if err == nil && as == files.InFolder && found == nil {
			err = fmt.Errorf("a folder without files whose names end in one of %s: name the files",
				strings.Join(suffixes, ", "))
		}
		if err != nil {
			return nil, &InputError{Input: input, Err: err}
		}
		all = append(all, found...)
	}
	if again, err := files.Once(all); err != nil {
		return nil, &OptionError{fmt.Errorf("%s %w", again, err)}
	}
	return all, nil
}

func ofSequences(path string) bool {
	name, _ := files.CutPacking(path)
	return slices.Contains(suffixes, filepath.Ext(name))
}

// zstdThreads unpack zstd where there are as many: of one frame three steps go on beside one another, which takes a
// tenth more CPU time.
const zstdThreads = 4

// frugalBlockBytes is the length of the blocks that tell that memory is not short. With shorter ones, packed data but
// for BGZF is unpacked in a row.
const frugalBlockBytes = 2 << 20

// open opens an input.
func (s *stream) open(in *input) (f *source, err error) {
	f = &source{s: s, in: in, want: s.o.BlockBytes}
	unpack := files.Unpacking{Bounded: s.o.MaxLetters > 0, Frugal: s.o.BlockBytes < frugalBlockBytes}
	var from io.ReadCloser
	switch {
	case s.o.Open != nil:
		f.want = min(f.want, openedBlockBytes)
		from, err = s.o.Open(in.name)
	case in.name == "-":
		from = io.NopCloser(os.Stdin)
		unpack.Work, unpack.Ahead, unpack.Waits = s.unpack, 2*s.ahead, true
	default:
		var file *os.File
		if file, err = os.Open(in.name); err != nil {
			return nil, err
		}
		if size, ok := sizeOf(file); ok {
			f.file, f.size, f.close = file, size, file.Close
			return f, nil
		}
		from = file
		// What others opened may not be read and closed at once.
		unpack.Work, unpack.Ahead = s.unpack, 2*s.ahead
		if s.o.Threads >= zstdThreads {
			unpack.Threads = zstdThreads
		}
	}
	if err != nil {
		return nil, err
	}
	if f.text, err = files.NewText(from, unpack); err != nil {
		return nil, err
	}
	f.close = f.text.Close
	return f, nil
}

// sizeOf is the size of a plain, regular file, which may be read anywhere; ok is false for others.
func sizeOf(file *os.File) (size int64, ok bool) {
	about, err := file.Stat()
	if err != nil || !about.Mode().IsRegular() {
		return 0, false
	}
	packing, err := files.PackingIn(file)
	return about.Size(), err == nil && packing == ""
}

// foreign are the first bytes of what users take for sequences, and what they can do.
var foreign = []struct{ first, what string }{
	{"BZh", "bzip2 data: unpack it, as with bzip2 -dc FILE | …"}, {"\xfd7zXZ\x00",
		"xz data: unpack it, as with xz -dc FILE | …"}, {"PK\x03\x04", "a zip archive: unpack it"},
	{"\xef\xbb\xbf", "a byte order mark stands before the text: take its three bytes away"},
	{"\xff\xfe", "UTF-16 text: make it UTF-8 or ASCII"}, {"\xfe\xff", "UTF-16 text: make it UTF-8 or ASCII"},
}

// neither is the error of a text that is no sequences.
func neither(text []byte) error {
	for _, f := range foreign {
		if bytes.HasPrefix(text, []byte(f.first)) {
			return errors.New(f.what)
		}
	}
	return errNeither
}

// RemoveHidden removes the files of this process that are not whole, such as those that kmers.Count and Database.Save
// write, and lets no new ones begin. It is for a process that has to end at once, while a call that cannot be
// interrupted still runs.
func RemoveHidden() { files.RemoveHidden() }
