# shellcheck shell=bash
# Sourced by the root scripts and by tools/: where things are on this machine. Sets `root`; needs bash.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { echo "$*" >&2; }

# nvcc counts when it is on PATH or where CUDA installs itself; CMake then finds it on PATH.
if ! command -v nvcc >/dev/null && [ -x /usr/local/cuda/bin/nvcc ]; then
  PATH=$PATH:/usr/local/cuda/bin
fi
has_nvcc() { command -v nvcc >/dev/null; }
has_gpu() { [ -e /dev/nvidiactl ] || [ -e /dev/dxg ]; }

# The optimised preset for this machine, after a notice where CUDA is here only in part.
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

# The wheel whose headers the products of experts are built with: its version decides their bits.
# shellcheck disable=SC2034  # of the scripts that source this
cutlass=nvidia-cutlass==4.2.0.0
# The headers that attention's graphs are built with: the version that the tests have passed with.
# shellcheck disable=SC2034
cudnn_frontend=nvidia-cudnn-frontend==1.32.0

# Dependencies unpacked by tools/pack_gpu_deps are used wherever the folder is.
packed=$root/.gpu-deps
uses_packed() { [ -d "$packed/usr/include" ] && [ "$(uname -m)" = x86_64 ]; }
