// Package stadium holds the studies of the paper on Stadium Hashing.
package stadium
