# Sourced by tests/gpu.sh, tests/gpu/report/gpu_step.sh and tests/gpu/report/gpu_rehearsal.sh: the steps, in their order.
#
#   steps               NAME EXPECTED LIMIT COMMAND..., one line per step; commands are those of tests/gpu/report/gpu_step.sh
#   $several_gpus       the steps for a machine with two or more GPUs
#   filter_of COMMAND   the tests of `unit` that a step runs, if any
#   $own_kernels        tests of our own kernels, in which no library computes
#
# POSIX sh.

# shellcheck shell=sh

# Expected seconds on a machine with one GPU and 16 cores; for tests those of an H200 plus a reserve; `gpu.sh --list` shows
# measured times. The most important steps come first.
steps() {
  cat <<'END'
there 15 60 look
build 100 590 build_programs_here
plans 10 120 unit cuDNN plans:*
elementwise 15 90 unit gpu: elementwise*,gpu: more elements*,gpu: comparisons and*,gpu: random numbers*
reductions 15 90 unit gpu: reductions*,gpu: rows*,gpu: norms*
channels 10 90 unit gpu: channels*,gpu: running averages*
fused 15 120 unit gpu: biases*,gpu: average pooling*
pools 15 90 unit gpu: pools*
products 15 90 unit gpu: products*,gpu: NaN: activations behind products*
views 5 60 unit gpu: strided*,gpu: print*
optimizers 5 60 unit gpu: optimizers*,gpu: lars*
nan 5 60 unit gpu: NaN: every*
memory 20 120 unit gpu: copies*,gpu: streams*,gpu: a step waits*,gpu: what kernels find*,gpu: more memory*,gpu: dlpack*,gpu: over*,gpu: external*
transports 10 90 unit gpu: transports*,gpu: collectives*,gpu: boxes*,gpu: no host waits*
graphs 20 120 unit gpu: a graph*,gpu: what cannot*,gpu: the masks*,gpu: why steps*,gpu: capturing*,gpu: a captured step*
captured 30 180 unit gpu: training with a captured*,gpu: training falls back*,gpu: CosmoFlow*
training 30 180 unit gpu: training is*,gpu: the host does not*,gpu: a loss*,gpu: batches*,gpu: a batch*
narrow 10 90 unit gpu: narrow integers*
trained 20 120 unit gpu: steps limited*,gpu: checkpoints*,gpu: contrastive*,gpu: FNO3d*,gpu: a U-Net*,gpu: recompute*
conv-nan 10 90 unit gpu: a convolution keeps*,gpu: an activation that*,gpu: kernels that need*,gpu: NaN: activations behind conv*
conv-128 30 180 unit gpu: few channels*,gpu: convolutions of the sizes*,gpu: what a version*
conv-large 20 120 unit gpu: a convolution of more than*
conv-kinds 30 300 sample unit gpu: convolutions of every*,gpu: convolutions and products*
conv-timed 20 300 sample unit gpu: convolutions timed*
table 20 300 unit gpu: the table*
unet-ops 30 120 ops unet3d 128 2 bfloat16
unet-128-1-bf16 60 240 row 128 1 bfloat16 unet3d
unet-128-2-bf16 60 240 row 128 2 bfloat16 unet3d
unet-128-4-bf16 60 240 row 128 4 bfloat16 unet3d
unet-128-7-bf16 60 240 row 128 7 bfloat16 unet3d
mlperf-128-1 20 120 row 128 1 bfloat16 cosmoflow-mlperf
mlperf-128-2 20 120 row 128 2 bfloat16 cosmoflow-mlperf
mlperf-128-4 20 120 row 128 4 bfloat16 cosmoflow-mlperf
mlperf-128-8 20 120 row 128 8 bfloat16 cosmoflow-mlperf
pyramid-ops 30 120 ops cosmoflow-pyramid 32 512 float32
study 580 590 study
kernels 30 300 bench gpu_kernels --device cuda
ncu 60 300 profile
tf32-ops 30 120 ops cosmoflow 128 4 tf32
step-128-4-tf32 60 240 row 128 4 tf32
step-128-1-tf32 60 240 row 128 1 tf32
contrastive 60 300 contrastive
layers-unet 400 590 layers 128 1 bfloat16 unet3d
layers-128-bf16 60 240 layers 128 1 bfloat16
layers-128-tf32 60 240 layers 128 1 tf32
step-128-1-bf16 60 240 row 128 1 bfloat16
step-128-8-bf16 60 240 row 128 8 bfloat16
step-128-4-bf16 60 240 row 128 4 bfloat16
soak 60 300 soak
engines 30 200 engines
questions 90 300 bench gpu_questions --device cuda
racecheck 240 590 sanitize racecheck
initcheck 180 590 sanitize initcheck
memcheck 180 500 sanitize memcheck
step-256-1-bf16 90 240 row 256 1 bfloat16
step-256-4-bf16 90 240 row 256 4 bfloat16
step-128-8-tf32 90 240 row 128 8 tf32
step-256-1-tf32 90 240 row 256 1 tf32
step-256-4-tf32 90 240 row 256 4 tf32
step-512-1-bf16 60 300 alone 512 1 bfloat16
step-512-1-tf32 60 300 alone 512 1 tf32
build-rest 120 590 build_rest
build-split 100 590 build_split
nccl 60 300 ranks_with_nccl
split-losses 60 300 split_losses
split-rates 60 300 split_rates
trainers 180 590 trainers
layers-128-8 90 300 layers 128 8 bfloat16
layers-256-1 90 300 layers 256 1 bfloat16
processor 240 590 on_the_processor
END
}

several_gpus='there build build-split nccl split-losses split-rates'

# Our own kernels, in tests in which libraries compute little or nothing.
own_kernels='gpu: elementwise*,gpu: comparisons and*,gpu: reductions*,gpu: rows*,gpu: channels*,gpu: biases*'
own_kernels="$own_kernels,gpu: average pooling*,gpu: pools*,gpu: strided*,gpu: optimizers*,gpu: random numbers*"
own_kernels="$own_kernels,gpu: narrow integers become*,gpu: few channels*"

# The filter of a step that runs parts of `unit`; empty for other steps.
filter_of() {
  case $1 in
    unit\ *) printf '%s\n' "${1#unit }" ;;
    sample\ unit\ *) printf '%s\n' "${1#sample unit }" ;;
    sanitize\ *) printf '%s\n' "$own_kernels" ;;
  esac
}
