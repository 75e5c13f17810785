// `bench disk`: writes a scratch file, reads it, and does both at once as a step does, with the queues of a run.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
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
#include "megatrain/host/memory.h"
#include "megatrain/host/parallel.h"
#include "megatrain/io/disk_queue.h"

namespace megatrain {

namespace {

constexpr int64_t kChunk = 64 * kMiB;     // one call of a queue, which splits it into pieces
constexpr int64_t kMemory = 16 * kChunk;  // in each direction: like a run's slabs, more than caches hold
constexpr double kNoLimit = 1e9;          // seconds

struct Unmap {
  size_t bytes;
  void operator()(std::byte* data) const { unmap_huge_pages(data, bytes); }
};

class DiskTimer {
 public:
  DiskTimer(const std::string& directory, int64_t bytes, double most_s)
      : file_({.directory = directory, .allow_network = true, .directory_key = "--dir", .size_key = "--gib"},
              round_up(bytes, kChunk)),
        reads_(make_disk_queue(file_)),
        writes_(make_disk_queue(file_)),
        span_(std::min({kMemory, file_.bytes(), std::max(kChunk, host_memory_available() / 8 / kChunk * kChunk)})),
        memory_(static_cast<std::byte*>(map_huge_pages(static_cast<size_t>(2 * span_), 1)),
                Unmap{static_cast<size_t>(2 * span_)}),
        most_s_(most_s),
        end_(file_.bytes()) {
    if (!memory_) fail(ExitCode::cannot_fit, fmt::format("could not map {}", format_bytes(2 * span_)));
    parallel_for(0, 2 * span_ / kChunk, [&](int64_t chunk) {  // random data, because a disk may compress
      for (int64_t at = chunk * kChunk; at < (chunk + 1) * kChunk; at += 8) {
        const uint64_t word = random_bits(1, 0, static_cast<uint64_t>(at));
        std::memcpy(memory_.get() + at, &word, sizeof(word));
      }
    });
  }

  const ScratchFile& file() const { return file_; }
  int64_t bytes() const { return end_; }

  // Bytes per second. Later passes read what this one has written.
  double write() {
    const double start = now_s();
    end_ = pass(true, 0);
    if (::fsync(file_.descriptor()) != 0)
      fail_io(fmt::format("cannot make {} durable: {}", file_.path(), std::strerror(errno)));
    return static_cast<double>(end_) / (now_s() - start);
  }
  double read() {
    if (!file_.direct()) ::posix_fadvise(file_.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
    const double start = now_s();
    return static_cast<double>(pass(false, 0)) / (now_s() - start);
  }
  // Both directions summed; each covers the whole file, half of it apart.
  double both() {
    const double start = now_s();
    auto written = std::async(std::launch::async, [&] { return pass(true, end_ / kChunk / 2 * kChunk); });
    const int64_t read = pass(false, 0);
    return static_cast<double>(read + written.get()) / (now_s() - start);
  }

 private:
  // Goes through the file once from `first`, wrapping around, or until the time is up. Returns the bytes moved.
  int64_t pass(bool write, int64_t first) {
    const double start = now_s();
    int64_t moved = 0;
    for (; moved < end_ && now_s() - start < most_s_; moved += kChunk) {
      const int64_t at = (first + moved) % end_;
      if (write) {
        writes_->write(at, memory_.get() + moved % span_, kChunk);
      } else {
        reads_->read(at, memory_.get() + span_ + moved % span_, kChunk);
      }
    }
    return moved;
  }

  ScratchFile file_;
  std::unique_ptr<DiskQueue> reads_, writes_;
  int64_t span_;  // bytes of memory in each direction
  std::unique_ptr<std::byte, Unmap> memory_;
  double most_s_;
  int64_t end_;  // bytes written so far
};

}  // namespace

DiskRates measure_disk(const std::string& directory, int64_t bytes, double most_s) {
  DiskTimer timer(directory, bytes, most_s);
  DiskRates rates{.direct = timer.file().direct()};
  rates.write_bytes_per_s = timer.write();
  rates.bytes = timer.bytes();
  rates.read_bytes_per_s = timer.read();
  rates.both_bytes_per_s = timer.both();
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
                   {"read_bytes_per_s", rates.read_bytes_per_s},
                   {"both_bytes_per_s", rates.both_bytes_per_s}},
          .text = fmt::format("write {:.2f} GB/s, read {:.2f} GB/s, both at once {:.2f} GB/s ({} in {}{})\n",
                              rates.write_bytes_per_s * 1e-9, rates.read_bytes_per_s * 1e-9,
                              rates.both_bytes_per_s * 1e-9, format_bytes(rates.bytes), directory,
                              rates.direct ? "" : "; no O_DIRECT there: the page cache may have helped")};
}

}  // namespace megatrain
