// Package files is the one way in which warpmap reads files that people name, and makes those that they ask for.
//
// # Inputs
//
// A name is that of a file, a pattern, a folder, or "-" for standard input (Expand). What can be read once, as a pipe,
// may be named once (Once). How a text is packed is told by its first bytes, whatever its name says: NewText unpacks
// gzip, members of BGZF beside one another, and zstd.
//
// # Outputs
//
// An Output is written to a hidden file beside its name, ".NAME.XXXXXXXX.tmp", and is renamed when it is whole and on
// the disk; a Folder of files is made alike. A reader sees the old file or the new one, never a part of one.
//
//   - A link is followed, also where it leads to nothing yet: the file that it leads to is replaced, the link stays.
//   - What is no file, as a pipe, a device or /dev/null, is written to as it is, and never replaced. So is the file
//     that standard output goes to: a shell writes there, too.
//   - A new file has the mode that the umask leaves. One that takes the place of another has that one's mode, and is
//     open to nobody else while it is written.
//   - A file that is read is not written to: CheckOutput and NotRead know it by any of its names.
//   - A temporary file has no name (Temporary), and so goes with the process, however that ends.
//   - RemoveHidden is for a process that ends early: it removes what is not whole, and nothing appears behind it.
package files
