#include "megatrain/io/scratch_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file_system.h"

namespace megatrain {

namespace {

// Creates a file whose name exists only until it is opened.
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
  fail_config(
      fmt::format("memory.nvme_path is {}, on a network file system ({}): every step would wait for the network; give "
                  "a directory on a drive of this machine, or set memory.nvme_force to use it anyway",
                  printable(place.directory), type));
}

void check_scratch_place(const ScratchPlace& place, int64_t bytes) {
  std::error_code error;
  if (!std::filesystem::is_directory(place.directory, error))
    fail_config(fmt::format("{} is {}, which is not a directory; give an existing one on an NVMe drive",
                            place.directory_key, printable(place.directory)));
  check_scratch_file_system(place, file_system_of(place.directory));
  remove_scratch_name(make_named_file(place));
  if (const int64_t there = free_scratch_bytes(place.directory); bytes > there)
    fail(
        ExitCode::cannot_fit,
        fmt::format("{} of disk are needed, but {} has {} free; free space there, lower {}, or give another {}",
                    format_bytes_up(bytes), place.directory, format_bytes(there), place.size_key, place.directory_key));
}

void remove_scratch_name(const std::string& path) {
  if (::unlink(path.c_str()) == 0) return;
  log_warn(fmt::format("could not unlink {}: {}; remove the file when the run has ended", path, std::strerror(errno)));
}

ScratchFile::ScratchFile(const ScratchPlace& place, const std::vector<int64_t>& range_bytes) {
  check_scratch_place(place, std::accumulate(range_bytes.begin(), range_bytes.end(), int64_t{0}));
  sums_ = ScratchSums(range_bytes);
  if (file_system_of(place.directory) == "tmpfs")
    log_warn(fmt::format("{} is {}, on tmpfs, which is host memory: offloading to it saves no memory",
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
    file_.reserve(bytes());
  } catch (...) {
    if (direct_ >= 0) ::close(direct_);
    throw;
  }
  if (direct_ >= 0 && bytes() > 0 && !reads_directly(direct_)) ::close(std::exchange(direct_, -1));
}

ScratchFile::~ScratchFile() {
  if (direct_ >= 0) ::close(direct_);
}

void ScratchFile::fail_changed(const ScratchPiece& piece) const {
  fail_io(
      fmt::format("the {} bytes at byte {} of {} were read back changed: the checksum differs from what was written; "
                  "check that drive and this machine's memory, and let no other program change the file",
                  piece.bytes, piece.offset, file_.path()));
}

void ScratchFile::read_piece(const ScratchPiece& piece, std::byte* data) const {
  file_.read_at(piece.offset, data, piece.bytes);
  if (!sums_.match(piece, data)) fail_changed(piece);
}

namespace {

// Calls visit(piece, at, count) for every piece that overlaps the bytes: `count` of them, from byte `at` of the piece
// on.
template <class Visit>
void for_pieces_of(const ScratchSums& sums, int64_t offset, int64_t bytes, const Visit& visit) {
  for (const int64_t end = offset + bytes; offset < end;) {
    const ScratchPiece piece = sums.piece_at(offset);
    const int64_t count = std::min(end, piece.end()) - offset;
    visit(piece, offset - piece.offset, count);
    offset += count;
  }
}

// Memory for a piece that the caller has only a part of, allocated on first use.
class PieceMemory {
 public:
  std::byte* get() {
    if (!memory_) memory_.reset(new std::byte[static_cast<size_t>(kScratchPiece)]);
    return memory_.get();
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace

void ScratchFile::read_at(int64_t offset, void* data, int64_t bytes) const {
  PieceMemory around;
  auto* out = static_cast<std::byte*>(data);
  for_pieces_of(sums_, offset, bytes, [&](const ScratchPiece& piece, int64_t at, int64_t count) {
    const bool whole = count == piece.bytes;
    std::byte* held = whole ? out : around.get();
    {
      const std::lock_guard lock(lock_of(piece));
      read_piece(piece, held);
    }
    if (!whole) std::memcpy(out, held + at, static_cast<size_t>(count));
    out += count;
  });
}

void ScratchFile::write_at(int64_t offset, const void* data, int64_t bytes) {
  PieceMemory around;
  const auto* in = static_cast<const std::byte*>(data);
  for_pieces_of(sums_, offset, bytes, [&](const ScratchPiece& piece, int64_t at, int64_t count) {
    const std::lock_guard lock(lock_of(piece));
    const std::byte* whole = in;
    if (count < piece.bytes) {  // the checksum covers the rest of the piece too
      read_piece(piece, around.get());
      std::memcpy(around.get() + at, in, static_cast<size_t>(count));
      whole = around.get();
    }
    file_.write_at(piece.offset + at, in, count);
    sums_.set(piece, whole);
    in += count;
  });
}

}  // namespace megatrain
