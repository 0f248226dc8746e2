// Package files is the one way in which warpmap reads files that people name, and makes files that they ask for.
//
// # Inputs
//
// A name is a file, a pattern, a folder, or "-" for standard input (Expand). An input that can be read only once, such
// as a pipe, may be named once (Once). The first bytes of a text tell how it is packed, whatever its name says. NewText
// unpacks gzip, zstd, and BGZF. It unpacks the members of BGZF and the frames of zstd beside one another, and other
// gzip data in pieces:
//
//	cut      reads pieces of 512 KiB, or twice that where blocks are long, in order
//	workers  decode a piece each, without the text before it (inflate.Chunk)
//	join     goes from piece to piece, and decodes what the workers could not (inflate.Sequence)
//	workers  put in the text before
//	Read     gives the text in order, and checks its sums
//
// What holds there:
//
//   - A piece, its chunk and its text are one of so many that are held; who read the text gives the place back. So
//     memory is bounded, and nobody waits for one that waits for him.
//   - A goroutine that waits, also waits for the end: Close stops all, and returns when they are gone.
//   - The text and the error are those of the data unpacked in a row.
//
// # Outputs
//
// An Output is written to a hidden file beside its name, such as ".j.csv.1f0c77a2.tmp" for j.csv, and is renamed when
// it is whole and on the disk. A Folder of files is made in the same way. A reader sees the old file or the new one,
// never a part of one.
//
//   - A link is followed, even if it leads to nothing yet: the file that it leads to is replaced, and the link stays.
//   - An output that is not a regular file, such as a pipe, a device or /dev/null, is written directly, and never
//     replaced. So is the file that standard output goes to, because a shell writes there, too.
//   - A new file has the mode that the umask leaves. A file that replaces another has the other's mode, from its
//     first byte on. Its owner and group are the writer's.
//   - A file that is read is not written to: CheckOutput and NotRead know it by any of its names.
//   - A temporary file has no name (Temporary), so it goes with the process, however that ends.
//   - A process that is killed leaves its hidden files and folders. Each is locked while its process works on it (by
//     Linux's flock), so the next output of the same name removes those that are not, if nothing was written to them
//     for a minute. Where there are no locks, they stay. Some network file systems have locks that other hosts do not
//     see: there, hosts should not write the same output at the same time.
//   - RemoveHidden is for a process that ends early: it removes what is not whole, and nothing appears after it.
package files
