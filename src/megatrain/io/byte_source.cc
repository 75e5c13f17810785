#include "megatrain/io/byte_source.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"

namespace megatrain {
namespace {

constexpr int64_t kStoredBytes = 256 * kKiB;    // read from the file at once
constexpr int64_t kUnpackedBytes = 256 * kKiB;  // unpacked at once
constexpr std::string_view kGzip = "\x1f\x8b", kZstd = "\x28\xb5\x2f\xfd";

// The compressed bytes of a file, a piece at a time.
class StoredBytes {
 public:
  explicit StoredBytes(const File& file) : file_(file), bytes_(file.bytes()) {}

  // Reads on if everything was used. False at the end of the file.
  bool fill() {
    if (used_ < piece_.size()) return true;
    piece_.resize(static_cast<size_t>(std::min(kStoredBytes, bytes_ - at_)));
    file_.read_at(at_, piece_.data(), std::ssize(piece_));
    at_ += std::ssize(piece_);
    used_ = 0;
    return !piece_.empty();
  }
  std::string_view rest() const { return std::string_view(piece_).substr(used_); }
  void use(size_t bytes) { used_ += bytes; }
  int64_t place() const { return at_ - static_cast<int64_t>(piece_.size() - used_); }

  [[noreturn]] void fail_truncated(const char* what) const {
    fail_input(
        fmt::format("{} ends in the middle of its {} data; the file is incomplete: get it again.", file_.path(), what));
  }
  [[noreturn]] void fail_damaged(const char* what, const std::string& why) const {
    fail_input(fmt::format("{} is damaged near byte {}: its {} data cannot be unpacked ({}); get it again.",
                           file_.path(), place(), what, why));
  }

 private:
  const File& file_;
  int64_t bytes_;
  std::string piece_;
  int64_t at_ = 0;  // how far the file was read
  size_t used_ = 0;
};

// One or more gzip members. Zeros may follow the last one.
class GzipUnpacker : public Unpacker {
 public:
  explicit GzipUnpacker(const File& file) : stored_(file) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    ensure(::inflateInit2(&stream_, kGzipOnly) == Z_OK, "zlib starts");
  }
  ~GzipUnpacker() override { ::inflateEnd(&stream_); }

  bool append(std::string& out) override {
    if (ended_ && !begin_member()) return false;
    if (!stored_.fill()) stored_.fail_truncated("gzip");
    const std::string_view rest = stored_.rest();
    // zlib takes its input without const, and does not change it.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));
    stream_.avail_in = static_cast<uInt>(rest.size());
    const size_t held = out.size();
    out.resize(held + static_cast<size_t>(kUnpackedBytes));
    stream_.next_out = reinterpret_cast<Bytef*>(out.data() + held);
    stream_.avail_out = static_cast<uInt>(kUnpackedBytes);
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    out.resize(out.size() - stream_.avail_out);
    stored_.use(rest.size() - stream_.avail_in);
    if (result == Z_STREAM_END) {
      ended_ = true;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      stored_.fail_damaged("gzip", stream_.msg == nullptr ? "zlib refuses it" : stream_.msg);
    }
    return true;
  }
  int64_t stored_bytes() const override { return stored_.place(); }

 private:
  bool begin_member() {
    while (stored_.fill()) {
      const std::string_view rest = stored_.rest();
      const size_t zeros = std::min(rest.find_first_not_of('\0'), rest.size());
      if (zeros == 0) {
        ::inflateReset(&stream_);
        ended_ = false;
        return true;
      }
      stored_.use(zeros);
    }
    return false;
  }

  StoredBytes stored_;
  z_stream stream_{};
  bool ended_ = false;  // the member
};

// One or more zstd frames.
class ZstdUnpacker : public Unpacker {
 public:
  explicit ZstdUnpacker(const File& file) : path_(file.path()), stored_(file), context_(::ZSTD_createDCtx()) {
    ensure(context_ != nullptr, "zstd starts");
  }
  ~ZstdUnpacker() override { ::ZSTD_freeDCtx(context_); }
  ZstdUnpacker(const ZstdUnpacker&) = delete;
  ZstdUnpacker& operator=(const ZstdUnpacker&) = delete;

  bool append(std::string& out) override {
    if (!stored_.fill() && !pending_) {
      if (in_frame_) stored_.fail_truncated("zstd");
      return false;
    }
    const std::string_view rest = stored_.rest();
    const size_t held = out.size();
    out.resize(held + static_cast<size_t>(kUnpackedBytes));
    ZSTD_inBuffer input{rest.data(), rest.size(), 0};
    ZSTD_outBuffer output{out.data() + held, static_cast<size_t>(kUnpackedBytes), 0};
    const size_t result = ::ZSTD_decompressStream(context_, &output, &input);
    out.resize(held + output.pos);
    if (::ZSTD_isError(result) != 0) {
      if (::ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
        fail_input(
            fmt::format("{} needs more than 128 MiB to be unpacked (zstd --long), which is not supported; unpack "
                        "it with unzstd --long=31.",
                        path_));
      stored_.fail_damaged("zstd", ::ZSTD_getErrorName(result));
    }
    stored_.use(input.pos);
    in_frame_ = result != 0;
    pending_ = in_frame_ && output.pos == output.size;  // zstd may hold more of what it has read
    return true;
  }
  int64_t stored_bytes() const override { return stored_.place(); }

 private:
  std::string path_;
  StoredBytes stored_;
  ZSTD_DCtx* context_;
  bool in_frame_ = false, pending_ = false;
};

std::unique_ptr<Unpacker> unpacker_of(const File& file) {
  std::string head(static_cast<size_t>(std::min<int64_t>(file.bytes(), 4)), '\0');
  file.read_at(0, head.data(), std::ssize(head));
  if (head.starts_with(kGzip)) return std::make_unique<GzipUnpacker>(file);
  if (head.starts_with(kZstd)) return std::make_unique<ZstdUnpacker>(file);
  return nullptr;
}

}  // namespace

ByteSource::ByteSource(const std::string& path) : file_(File::open_to_read(path)), bytes_(file_.bytes()) {
  start_over();
  is_packed_ = unpacker_ != nullptr;
}

void ByteSource::start_over() {
  unpacker_ = unpacker_of(file_);
  held_.clear();
  begin_ = 0;
  unpacked_all_ = false;
}

int64_t ByteSource::read(std::string& out, int64_t at, int64_t bytes) {
  if (!is_packed_) {
    bytes = std::clamp<int64_t>(bytes_ - at, 0, bytes);
    const size_t held = out.size();
    out.resize(held + static_cast<size_t>(bytes));
    file_.read_at(at, out.data() + held, bytes);
    return bytes;
  }
  if (at < begin_) start_over();
  unpack_to(at + bytes);
  bytes = std::clamp<int64_t>(begin_ + std::ssize(held_) - at, 0, bytes);
  if (bytes > 0) out.append(held_, static_cast<size_t>(at - begin_), static_cast<size_t>(bytes));
  return bytes;
}

bool ByteSource::ends_at(int64_t at) {
  if (!is_packed_) return at >= bytes_;
  if (at < begin_) start_over();
  unpack_to(at + 1);
  return at >= begin_ + std::ssize(held_);
}

void ByteSource::forget_before(int64_t at) { kept_from_ = at; }

int64_t ByteSource::stored_bytes(int64_t at) const {
  return is_packed_ ? unpacker_->stored_bytes() : std::min(at, bytes_);
}

void ByteSource::unpack_to(int64_t end) {
  while (!unpacked_all_ && begin_ + std::ssize(held_) < end) {
    // What may go is removed once it is half of what is held, so that each byte is moved about once.
    const int64_t done = std::min(kept_from_ - begin_, std::ssize(held_));
    if (done > 0 && done >= std::ssize(held_) / 2) {
      held_.erase(0, static_cast<size_t>(done));
      begin_ += done;
    }
    unpacked_all_ = !unpacker_->append(held_);
  }
}

}  // namespace megatrain
