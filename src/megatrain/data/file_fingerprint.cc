#include "megatrain/data/file_fingerprint.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/math.h"
#include "megatrain/base/units.h"
#include "megatrain/host/parallel.h"
#include "megatrain/io/file.h"
#include "megatrain/io/xxh3.h"

namespace megatrain {
namespace {

constexpr int64_t kBlock = kMiB;
constexpr int64_t kBlocksATask = 16;

}  // namespace

std::string file_fingerprint(const std::string& path, int threads, const FingerprintScope& scope) {
  const File file = File::open_to_read(path);
  const int64_t bytes = std::min(file.bytes(), scope.bytes), blocks = ceil_div(bytes, kBlock),
                read = std::min(blocks, scope.most);
  std::vector<std::string> hashes(static_cast<size_t>(read));
  parallel_for(threads, ceil_div(read, kBlocksATask), [&](int64_t task) {
    std::vector<std::byte> buffer(static_cast<size_t>(std::min(bytes, kBlock)));
    const int64_t end = std::min(read, (task + 1) * kBlocksATask);
    for (int64_t i = task * kBlocksATask; i < end; ++i) {
      const int64_t block = read == blocks ? i : i * (blocks - 1) / (read - 1);
      const int64_t size = std::min(kBlock, bytes - block * kBlock);
      file.read_at(block * kBlock, buffer.data(), size);
      hashes[static_cast<size_t>(i)] = xxh3_128(buffer.data(), static_cast<size_t>(size));
      if (scope.read) scope.read(size);
    }
  });
  Xxh3 all;
  const std::string size = fmt::format("{}", bytes);
  all.update(size.data(), size.size());
  for (const std::string& hash : hashes) all.update(hash.data(), hash.size());
  return all.digest();
}

}  // namespace megatrain
