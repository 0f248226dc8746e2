#!/bin/bash
# Run the program by Open MPI on several hosts:
#
#     CGO_ENABLED=0 go build ./examples/cluster
#     examples/cluster/mpi.sh hosts
#
# hosts is a file with one line for each host and its number of GPUs, such as "node1 slots=4". Rank 0 runs on the first
# host. Arguments that follow go to the program. The program must be at the same path on all hosts.
set -euo pipefail
hosts=$1
shift

# Only processes that have this secret can join. mpirun -x passes it on without naming it on a command line.
WARPMAP_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')

# Rank 0 listens at the first host of the file, which all hosts must reach by this name.
MASTER_ADDR=$(awk '!/^[[:space:]]*(#|$)/ { print $1; exit }' "$hosts")
MASTER_PORT=${MASTER_PORT:-29500}
export WARPMAP_TOKEN MASTER_ADDR MASTER_PORT

# mpirun starts a process for each slot, and sets OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE and
# OMPI_COMM_WORLD_LOCAL_RANK. Process i of a host opens GPU i of the host. A process of Go has several threads, so it is
# not bound to one core.
exec mpirun --hostfile "$hosts" --map-by slot --bind-to none \
    -x WARPMAP_TOKEN -x MASTER_ADDR -x MASTER_PORT ./cluster "$@"
