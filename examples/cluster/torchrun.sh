#!/bin/bash
# Run the program by torchrun. On one host with 4 GPUs:
#
#     CGO_ENABLED=0 go build ./examples/cluster
#     GPUS=4 examples/cluster/torchrun.sh
#
# On several hosts, call the script on each of them, with the same token and the same first host:
#
#     export WARPMAP_TOKEN=...    # the same on all hosts, such as openssl rand -hex 32 makes
#     NODES=2 GPUS=4 FIRST=node1 examples/cluster/torchrun.sh
#
# Arguments of this script go to the program.
set -euo pipefail
NODES=${NODES:-1}                      # hosts
GPUS=${GPUS:-$(nvidia-smi -L | wc -l)} # processes on this host, one for each GPU
FIRST=${FIRST:-127.0.0.1}              # the host at which all instances of torchrun meet
PORT=${PORT:-29400}

# A token for one host. All hosts of a job need the same token, so a script on each host cannot make it.
if [ -z "${WARPMAP_TOKEN:-}" ]; then
    if [ "$NODES" -gt 1 ]; then
        echo "set WARPMAP_TOKEN to the same secret on all hosts" >&2
        exit 2
    fi
    WARPMAP_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
fi
export WARPMAP_TOKEN

# With --no-python torchrun starts any program. It sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, and
# TORCHELASTIC_USE_AGENT_STORE if torchrun itself listens at MASTER_PORT: then rank 0 listens at the port that follows.
# A table does not survive the end of a process, so nothing is restarted.
exec torchrun --nnodes="$NODES" --nproc-per-node="$GPUS" --max-restarts=0 \
    --rdzv-backend=c10d --rdzv-endpoint="$FIRST:$PORT" --rdzv-id=cluster \
    --no-python ./cluster "$@"
