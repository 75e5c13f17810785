# shellcheck shell=bash
# Sourced by checks that need a clean Debian: makes chroots from the package sources that this machine's apt uses, and
# runs commands in them. After common.sh; needs root and debootstrap.

needs_chroots() { # WHO
  if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    say "$1 makes chroots: run it as root, with the package debootstrap installed"
    exit 2
  fi
}

# Sets `inside` to the chroot FOLDER of a release, with these packages besides the minimal ones; makes it at the first
# call.
open_chroot() { # FOLDER RELEASE [PACKAGE…]
  local folder=$1 release=$2 mirror include
  shift 2
  inside=$folder/root
  [ ! -e "$folder/made" ] || return 0
  # shellcheck disable=SC2016  # apt's own variable
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
  if [ -z "$mirror" ]; then
    say "apt on this machine knows no Debian package source (apt-get update may be due), so there is nothing to make a chroot from"
    exit 2
  fi
  say "making a chroot of Debian's $release in $folder"
  rm -rf "$folder"
  mkdir -p "$folder"
  include=$(IFS=,; echo "$*")
  debootstrap --variant=minbase ${include:+--include="$include"} "$release" "$inside" "$mirror" >"$folder/debootstrap.log" || {
    tail -n 20 "$folder/debootstrap.log" >&2
    exit 1
  }
  touch "$folder/made"
}

# Runs a shell script in `inside`, in a mount namespace of its own, so that nothing stays mounted whatever happens.
in_chroot() { # SCRIPT [NAME=VALUE…]
  local script=$1
  shift
  # shellcheck disable=SC2016  # expanded there
  inside=$inside unshare --mount --propagation private bash -euc '
    mount -t proc proc "$inside/proc"
    mount --bind /dev "$inside/dev"
    script=$1
    shift
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" \
      chroot "$inside" bash -euc "$script"' in_chroot "$script" "$@"
}
