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
#include "megatrain/bench/measure.h"
#include "megatrain/config/arguments.h"
#include "megatrain/host/arena.h"
#include "megatrain/host/thread_team.h"

namespace megatrain {

namespace {

constexpr int64_t kBlock = 4 * kMiB;
constexpr int kThreads = 4;       // requests on their way at once
constexpr double kNoLimit = 1e9;  // seconds

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

DiskRates measure_disk(const std::string& directory, int64_t asked, double most_s) {
  const int64_t bytes = round_up(asked, kBlock);
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
  int64_t written = bytes;  // what there is to read
  const auto pass = [&](bool write) {
    const int64_t end = written;
    std::atomic<int> error = 0;
    std::atomic<int64_t> next = 0, whole = 0;  // bytes begun, bytes of blocks that are done
    const double start = now_s();
    team.parallel_for(kThreads, [&](int64_t thread) {
      std::byte* block = memory.get() + thread * kBlock;
      for (int64_t at = next.fetch_add(kBlock); at < end && error == 0 && now_s() - start < most_s;
           at = next.fetch_add(kBlock)) {
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
        whole += kBlock;
      }
    });
    if (error == 0 && write && ::fsync(file.descriptor()) != 0) error = errno;
    if (error != 0) {
      fail_io(fmt::format("cannot {} {} in {}: {}; free space there or give a smaller --gib", write ? "write" : "read",
                          format_bytes(bytes), directory, std::strerror(error)));
    }
    if (write) written = whole;
    return static_cast<double>(whole) / (now_s() - start);
  };
  DiskRates rates{.direct = file.direct()};
  rates.write_bytes_per_s = pass(true);
  rates.bytes = written;
  if (!file.direct()) ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  rates.read_bytes_per_s = pass(false);
  return rates;
}

BenchResult bench_disk(const Arguments& arguments) {
  arguments.none();
  const std::string directory = arguments.option("--dir").value_or(".");
  const DiskRates rates = measure_disk(directory, gib_option(arguments.option("--gib").value_or("4")), kNoLimit);
  return {.json = {{"dir", directory},
                   {"bytes", rates.bytes},
                   {"direct", rates.direct},
                   {"write_bytes_per_s", rates.write_bytes_per_s},
                   {"read_bytes_per_s", rates.read_bytes_per_s}},
          .text = fmt::format("write {:.2f} GB/s, read {:.2f} GB/s ({} in {}{})\n", rates.write_bytes_per_s * 1e-9,
                              rates.read_bytes_per_s * 1e-9, format_bytes(rates.bytes), directory,
                              rates.direct ? "" : "; no O_DIRECT there: the page cache may have helped")};
}

}  // namespace megatrain
