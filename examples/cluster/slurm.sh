#!/bin/bash
# Run the program by Slurm on 2 nodes with 4 GPUs each:
#
#     CGO_ENABLED=0 go build ./examples/cluster
#     sbatch examples/cluster/slurm.sh
#
# Arguments of this script go to the program. The program must be in the folder in which sbatch is called, on a file
# system that all nodes have.
#
#SBATCH --job-name=cluster
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=00:10:00
set -euo pipefail

# Only processes that have this secret can join. srun passes the environment of this script to all tasks.
WARPMAP_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')

# Rank 0 runs on the first node of the job, and listens there. Another job on that node has another port.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
MASTER_ADDR=${hosts%%$'\n'*}
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export WARPMAP_TOKEN MASTER_ADDR MASTER_PORT

# srun starts one task for each GPU, and sets SLURM_PROCID, SLURM_NTASKS and SLURM_LOCALID. Task i of a node opens GPU i
# of the node, so each task must see all GPUs of its node: do not ask for GPUs per task. If a task fails, srun ends the
# other tasks.
exec srun --gpu-bind=none --kill-on-bad-exit=1 ./cluster "$@"
