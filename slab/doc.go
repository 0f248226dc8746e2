// Package slab implements SlabHash.
package slab
