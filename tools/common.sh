# shellcheck shell=bash
# Sourced by the root scripts and by tools/: where things are on this machine. Sets `root`; needs bash.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { echo "$*" >&2; }

# nvcc counts if it is on PATH or in CUDA's usual folder; CMake then finds it on PATH.
if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
  PATH=$PATH:/usr/local/cuda/bin
fi
has_nvcc() { command -v nvcc >/dev/null; }
has_gpu() { [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; }

# The optimised preset for this machine, after a notice if CUDA is only partly installed.
best_preset() {
  if ! has_nvcc; then
    echo release
  elif has_header cudnn.h "$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")/include"; then
    echo cuda
  else
    say "nvcc is here but cuDNN's cudnn.h is not: building for the CPU only"
    echo release
  fi
}

multiarch=$(uname -m)-linux-gnu

# has_header NAME [FOLDER…]: in the system's include folders, or below the given ones.
has_header() {
  local name=$1 folder
  shift
  for folder in /usr/include "/usr/include/$multiarch" /usr/local/include "$@"; do
    [ -e "$folder/$name" ] && return 0
  done
  return 1
}

# The wheel with the headers for the expert matmuls: its version decides their bits.
# shellcheck disable=SC2034  # of the scripts that source this
cutlass=nvidia-cutlass==4.2.0.0
# The headers for attention's graphs: the version with which the tests have passed.
# shellcheck disable=SC2034
cudnn_frontend=nvidia-cudnn-frontend==1.32.0
# The wheel with Apache Arrow's C++ libraries and headers, for Parquet and Arrow files.
# shellcheck disable=SC2034
arrow=pyarrow==26.0.1

# Dependencies unpacked by tools/pack_gpu_deps are used if their folder exists.
packed=$root/.gpu-deps
uses_packed() { [ -d "$packed/usr/include" ] && [ "$(uname -m)" = x86_64 ]; }
