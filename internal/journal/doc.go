// Package journal is a log in a folder, of what was done to something that is in memory: serve/flight has one of its
// tables.
//
//	folder  lock     of the process that uses it
//	        log.7    records of what was done
//	        log.8    of a process that was started again, or since a snapshot was begun
//
//	file    a word │ record │ record │ …
//	record  checksum of the head │ checksum of the body │ kind, lengths: see Format │ body …
//	        4                      4                      24
//
// # What holds
//
//   - Records are in the files in the order in which they were added, file after file. A file is not written while one
//     before it could not be, or is not on the disk yet.
//   - Commit returns when all that was added before is in the files, and on the disk where it is to be. Those that come
//     while another writes or syncs go together behind that one: one fsync for all that wait.
//   - What cannot be written stays in memory, and is tried again each second; Err says why meanwhile. What could not be
//     synced is lost for good, since nobody knows what the disk has, until Ended says that a snapshot has it.
//   - A file that a process wrote is never added to by another. The tail of the last that has records may be torn, as it
//     is when a process is killed: Replay cuts it, and tells. What is damaged elsewhere is an error, unless the caller
//     has it cut, too.
//   - Reading takes no more memory than the file has bytes.
package journal
