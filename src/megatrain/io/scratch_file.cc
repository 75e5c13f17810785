#include "megatrain/io/scratch_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file_system.h"

namespace megatrain {

namespace {

// A file that has a name for as long as it takes to open it.
std::string make_named_file(const ScratchPlace& place) {
  std::string path = place.directory + "/megatrain-scratch-XXXXXX";
  const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0)
    fail_config(fmt::format("cannot create a file in {}, {}: {}; give a directory that can be written",
                            place.directory_key, printable(place.directory), std::strerror(errno)));
  ::close(descriptor);
  return path;
}

// Some file systems open a file with O_DIRECT and then refuse every transfer.
bool reads_directly(int descriptor) {
  const std::unique_ptr<void, decltype(&::free)> block(::aligned_alloc(kDiskBlock, kDiskBlock), &::free);
  return ::pread(descriptor, block.get(), kDiskBlock, 0) == kDiskBlock;
}

}  // namespace

int64_t free_scratch_bytes(const std::string& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) return 0;
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

void check_scratch_file_system(const ScratchPlace& place, const std::string& type) {
  if (!is_network_file_system(type) || place.allow_network) return;
  fail_config(fmt::format(
      "memory.nvme_path is {}, on a network file system ({}): every step would wait for the network; give a "
      "directory on a drive of this machine, or set memory.nvme_force to use it all the same",
      printable(place.directory), type));
}

void check_scratch_place(const ScratchPlace& place, int64_t bytes) {
  std::error_code error;
  if (!std::filesystem::is_directory(place.directory, error))
    fail_config(fmt::format("{} is {}, which is not a directory; give one that is there, on an NVMe drive",
                            place.directory_key, printable(place.directory)));
  check_scratch_file_system(place, file_system_of(place.directory));
  remove_scratch_name(make_named_file(place));
  if (const int64_t there = free_scratch_bytes(place.directory); bytes > there)
    fail(
        ExitCode::cannot_fit,
        fmt::format("{} are asked for on disk and {} has {} free; free space there, lower {}, or give another {}",
                    format_bytes_up(bytes), place.directory, format_bytes(there), place.size_key, place.directory_key));
}

void remove_scratch_name(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return;
  log_warn(
      fmt::format("could not remove the name of {}: {}; the file stays behind, so remove it when the run has ended",
                  path, std::strerror(errno)));
}

ScratchFile::ScratchFile(const ScratchPlace& place, int64_t bytes) : bytes_(bytes) {
  check_scratch_place(place, bytes);
  if (file_system_of(place.directory) == "tmpfs")
    log_warn(fmt::format("{} is {}, on tmpfs, which is memory: what lives there is not off the host's memory",
                         place.directory_key, printable(place.directory)));
  const std::string path = make_named_file(place);
  try {
    file_ = File::open_to_write(path);
    direct_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT);
  } catch (...) {
    remove_scratch_name(path);
    throw;
  }
  remove_scratch_name(path);
  try {
    file_.reserve(bytes);
  } catch (...) {
    if (direct_ >= 0) ::close(direct_);
    throw;
  }
  if (direct_ >= 0 && bytes > 0 && !reads_directly(direct_)) ::close(std::exchange(direct_, -1));
}

ScratchFile::~ScratchFile() {
  if (direct_ >= 0) ::close(direct_);
}

}  // namespace megatrain
