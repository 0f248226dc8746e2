// What became of an operation on one key: the numbers are those of table.Status.
#pragma once
#include "layout.h"
#include "types.cuh"

enum Outcome : u32 {
    ABSENT = WARPMAP_ABSENT,   // the key was not there, to be found or erased
    PRESENT = WARPMAP_PRESENT, // it was there, and was found, replaced, left alone, or erased
    ADDED = WARPMAP_ADDED,     // it was not there, and is in now
    FULL = WARPMAP_NO_ROOM,    // it was not there, and found no room
};
