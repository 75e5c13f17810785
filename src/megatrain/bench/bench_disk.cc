// `bench disk`: sequential write and read past the page cache. The file loses its name before the first byte is
// written, so nothing of it can stay behind.
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/bench/bench.h"
#include "megatrain/config/arguments.h"
#include "megatrain/host/arena.h"
#include "megatrain/host/thread_team.h"

namespace megatrain {

namespace {

constexpr int64_t kBlock = 4 * kMiB;
constexpr int kThreads = 4;  // requests on their way at once

class NamelessFile {
 public:
  explicit NamelessFile(const std::string& directory) {
    std::string path = directory + "/megatrain-bench-XXXXXX";
    descriptor_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (descriptor_ < 0)
      fail_io(
          fmt::format("cannot create a file in {}: {}; choose another with --dir", directory, std::strerror(errno)));
    ::unlink(path.c_str());
    direct_ = ::fcntl(descriptor_, F_SETFL, O_DIRECT) == 0;
  }
  ~NamelessFile() { ::close(descriptor_); }
  NamelessFile(const NamelessFile&) = delete;
  NamelessFile& operator=(const NamelessFile&) = delete;

  int descriptor() const { return descriptor_; }
  bool direct() const { return direct_; }  // false: this file system has no O_DIRECT

 private:
  int descriptor_ = -1;
  bool direct_ = false;
};

struct Unmap {
  size_t bytes;
  void operator()(std::byte* data) const { unmap_huge_pages(data, bytes); }
};

}  // namespace

BenchResult bench_disk(const Arguments& arguments) {
  arguments.none();
  const std::string directory = arguments.option("--dir").value_or(".");
  const int64_t bytes = round_up(gib_option(arguments.option("--gib").value_or("4")), kBlock);

  const size_t memory_bytes = static_cast<size_t>(kThreads * kBlock);
  const std::unique_ptr<std::byte, Unmap> memory(static_cast<std::byte*>(map_huge_pages(memory_bytes, 1)),
                                                 Unmap{memory_bytes});
  if (!memory) fail(ExitCode::cannot_fit, fmt::format("could not map {}", format_bytes(kThreads * kBlock)));
  for (size_t at = 0; at < memory_bytes; at += sizeof(uint64_t)) {  // a disk may compress
    const uint64_t word = random_bits(1, 0, at);
    std::memcpy(memory.get() + at, &word, sizeof(word));
  }

  const NamelessFile file(directory);
  ThreadTeam team(kThreads);
  const auto pass = [&](bool write) {
    std::atomic<int> error = 0;
    std::atomic<int64_t> next = 0;
    const double start = now_s();
    team.parallel_for(kThreads, [&](int64_t thread) {
      std::byte* block = memory.get() + thread * kBlock;
      for (int64_t at = next.fetch_add(kBlock); at < bytes && error == 0; at = next.fetch_add(kBlock)) {
        for (int64_t done = 0; done < kBlock;) {
          const size_t left = static_cast<size_t>(kBlock - done);
          const ssize_t moved = write ? ::pwrite(file.descriptor(), block + done, left, at + done)
                                      : ::pread(file.descriptor(), block + done, left, at + done);
          if (moved < 0 && errno == EINTR) continue;
          if (moved <= 0) {
            error = moved < 0 ? errno : EIO;
            return;
          }
          done += moved;
        }
      }
    });
    if (error == 0 && write && ::fsync(file.descriptor()) != 0) error = errno;
    if (error != 0) {
      fail_io(fmt::format("cannot {} {} in {}: {}; free space there or give a smaller --gib", write ? "write" : "read",
                          format_bytes(bytes), directory, std::strerror(error)));
    }
    return static_cast<double>(bytes) / (now_s() - start);
  };
  const double write = pass(true);
  if (!file.direct()) ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  const double read = pass(false);
  return {.json = {{"dir", directory},
                   {"bytes", bytes},
                   {"direct", file.direct()},
                   {"write_bytes_per_s", write},
                   {"read_bytes_per_s", read}},
          .text = fmt::format("write {:.2f} GB/s, read {:.2f} GB/s ({} in {}{})\n", write * 1e-9, read * 1e-9,
                              format_bytes(bytes), directory,
                              file.direct() ? "" : "; no O_DIRECT there: the page cache may have helped")};
}

}  // namespace megatrain
