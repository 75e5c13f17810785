#include "megatrain/io/line_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/log.h"
#include "megatrain/io/json.h"
#include "megatrain/io/line_reader.h"
#include "megatrain/io/object_scan.h"
#include "megatrain/io/replace.h"

namespace megatrain {

namespace {

// The "step" of a line, 0 where it has none; nothing where the line is no object with a step that is a whole number.
std::optional<int64_t> step_of(std::string_view line) {
  constexpr std::array<std::string_view, 1> kKeys = {"step"};
  std::array<std::string_view, 1> found;
  if (scan_object(line, kKeys, found)) {
    if (found[0].empty()) return 0;
    if (const std::optional<int64_t> step = scanned_integer(found[0])) return step;
  }
  const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object()) return {};
  const nlohmann::json step = object.value("step", nlohmann::json(0));
  return step.is_number_integer() ? std::optional(step.get<int64_t>()) : std::nullopt;
}

struct ByteRange {
  int64_t begin = 0, end = 0;
};

void add_range(const LineReader& line, std::vector<ByteRange>& ranges) {
  if (ranges.empty() || ranges.back().end != line.offset()) ranges.push_back({line.offset(), line.offset()});
  ranges.back().end += line.bytes();
}

// Copies the ranges to the end of `to`, and ends its last line.
void append_ranges(const File& from, const std::vector<ByteRange>& ranges, const File& to) {
  constexpr int64_t kPiece = 1 << 20;
  std::string piece;
  int64_t at = to.bytes();
  for (const auto& [begin, end] : ranges) {
    for (int64_t next = begin; next < end; next += std::ssize(piece)) {
      piece.resize(static_cast<size_t>(std::min(kPiece, end - next)));
      from.read_at(next, piece.data(), std::ssize(piece));
      to.write_at(at, piece.data(), std::ssize(piece));
      at += std::ssize(piece);
    }
  }
  if (!piece.empty() && piece.back() != '\n') to.write_at(at, "\n", 1);
  to.sync();
}

void set_aside(const File& file, const std::vector<ByteRange>& damaged, const std::vector<int64_t>& numbers) {
  constexpr int64_t kNamed = 8;
  const std::string aside = file.path() + ".damaged";
  append_ranges(file, damaged, File::open_to_write(aside));
  sync_directory(parent_directory(aside));
  const int64_t count = std::ssize(numbers), more = count - std::min(count, kNamed);
  std::vector<std::string> places;
  for (int64_t i = 0; i < count - more; ++i)
    places.push_back(fmt::format("{}:{}", file.path(), numbers[static_cast<size_t>(i)]));
  log_warn(fmt::format("{}{}: no JSON object with a \"step\"; moved to {}, and the run goes on without {}",
                       fmt::join(places, ", "), more > 0 ? fmt::format(" and {} more", more) : "", aside,
                       count == 1 ? "it" : "them"));
}

}  // namespace

LineFile::LineFile(const std::string& path) : file_(File::open_to_write(path)), at_(file_.bytes()) {
  if (at_ == 0) return;
  char last = 0;
  file_.read_at(at_ - 1, &last, 1);
  if (last != '\n') append("");
}

void LineFile::append(std::string_view line) {
  const std::string text = std::string(line) + '\n';
  file_.write_at(at_, text.data(), static_cast<int64_t>(text.size()));
  at_ += static_cast<int64_t>(text.size());
}

void keep_lines_up_to(const std::string& path, int64_t last_step) {
  if (!can_read(path)) return;
  std::vector<ByteRange> kept, damaged;
  std::vector<int64_t> numbers;  // of the damaged lines
  int64_t bytes = 0;
  bool whole = true;  // every line has its end
  for (LineReader line(path); line.next();) {
    bytes += line.bytes();
    whole = line.ended();
    if (line.line().find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::optional<int64_t> step = step_of(line.line());
    if (step && *step <= last_step) add_range(line, kept);
    if (step) continue;
    add_range(line, damaged);
    numbers.push_back(line.number());
  }
  if (whole && (bytes == 0 || (kept.size() == 1 && kept[0].end - kept[0].begin == bytes))) return;
  const File file = File::open_to_read(path);
  if (!damaged.empty()) set_aside(file, damaged, numbers);
  PartialPath partial(fmt::format("{}.{}-0.partial", path, ::getpid()));
  std::error_code ignored;
  std::filesystem::remove(partial.path(), ignored);
  partial.created();
  {
    const File fresh = File::create(partial.path());
    append_ranges(file, kept, fresh);
  }
  partial.put_at(path);
}

}  // namespace megatrain
