#include "megatrain/io/line_file.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/json.h"
#include "megatrain/io/strict_json.h"
#include "megatrain/io/line_reader.h"
#include "megatrain/io/object_scan.h"
#include "megatrain/io/replace.h"

namespace megatrain {

namespace {

struct LineRecord {
  int64_t step = 0;
  std::string_view number;  // the first of LineForm's numbers that the record has
};

// The parser's answer for lines that the scanner cannot decide.
std::optional<LineRecord> parse_record(std::string_view line, const LineForm& form) {
  StrictJsonBuilder<nlohmann::json> builder;  // not parse_json(): no writer of records makes Python's floats
  if (parse_strictly(line, builder)) return {};
  const nlohmann::json object = builder.take();
  const auto step = object.is_object() ? object.find("step") : object.end();
  if (step == object.end() || !step->is_number_unsigned()) return {};
  const auto value = step->get<uint64_t>();
  if (value < 1 || value > static_cast<uint64_t>(kMostSteps)) return {};
  const auto is_number = [&](std::string_view key) {
    const auto found = object.find(std::string(key));
    return found != object.end() && found->is_number();
  };
  const auto is_text = [&](std::string_view key) {
    const auto found = object.find(std::string(key));
    return found != object.end() && found->is_string();
  };
  const auto number = std::find_if(form.numbers.begin(), form.numbers.end(), is_number);
  if (number == form.numbers.end() && !form.numbers.empty()) return {};
  if (!std::all_of(form.texts.begin(), form.texts.end(), is_text)) return {};
  return LineRecord{.step = static_cast<int64_t>(value), .number = form.numbers.empty() ? "" : *number};
}

// A long run has hundreds of thousands of lines, so JSON trees are built only for lines that the scanner cannot decide.
std::optional<LineRecord> record_of(std::string_view line, const LineForm& form) {
  std::vector<std::string_view> keys = {"step"};
  keys.insert(keys.end(), form.numbers.begin(), form.numbers.end());
  keys.insert(keys.end(), form.texts.begin(), form.texts.end());
  std::vector<std::string_view> found(keys.size());
  if (!scan_object(line, keys, found)) return parse_record(line, form);
  const std::optional<int64_t> step = scanned_integer(found[0]);
  if (!step || *step < 1 || *step > kMostSteps) return parse_record(line, form);
  LineRecord record{.step = *step, .number = {}};
  for (size_t i = 1; i < keys.size(); ++i) {
    const bool number = i <= form.numbers.size();
    if (number && record.number.empty() && scanned_number(found[i])) record.number = keys[i];
    if (!number && !scanned_text(found[i])) return parse_record(line, form);
  }
  if (record.number.empty() && !form.numbers.empty()) return parse_record(line, form);
  return record;
}

// Tells the first record of each step from repeated ones.
class FirstRecords {
 public:
  explicit FirstRecords(bool several) : several_(several) {}

  bool take(const std::optional<LineRecord>& record) {
    return record && (several_ || seen_[record->number].insert(record->step).second);
  }

 private:
  bool several_;
  std::map<std::string_view, std::unordered_set<int64_t>> seen_;
};

struct ByteRange {
  int64_t begin = 0, end = 0;
};

void add_range(const LineReader& line, std::vector<ByteRange>& ranges) {
  if (ranges.empty() || ranges.back().end != line.offset()) ranges.push_back({line.offset(), line.offset()});
  ranges.back().end += line.bytes();
}

// Appends the ranges to `to` and terminates its last line.
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

// "FILE:3, FILE:5"
std::string places_of(const std::string& path, const std::vector<int64_t>& numbers) {
  constexpr int64_t kNamed = 8;
  const int64_t count = std::ssize(numbers), more = count - std::min(count, kNamed);
  std::vector<std::string> places;
  for (int64_t i = 0; i < count - more; ++i)
    places.push_back(fmt::format("{}:{}", path, numbers[static_cast<size_t>(i)]));
  return fmt::format("{}{}", fmt::join(places, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

struct DamagedLines {
  std::vector<ByteRange> ranges;
  std::vector<int64_t> unreadable, repeated;  // line numbers
};

void set_aside(const File& file, const DamagedLines& damaged) {
  const std::string aside = file.path() + ".damaged";
  append_ranges(file, damaged.ranges, File::open_to_write(aside));
  sync_directory(parent_directory(aside));
  for (const auto& [numbers, what] : {std::pair{&damaged.unreadable, "not a record of a \"step\""},
                                      {&damaged.repeated, "a second record of the same step"}})
    if (!numbers->empty())
      log_warn(fmt::format("{}: {}; moved to {}, and the run continues without {}", places_of(file.path(), *numbers),
                           what, aside, numbers->size() == 1 ? "it" : "them"));
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

int64_t keep_lines_up_to(const std::string& path, int64_t last_step, const LineForm& form) {
  if (!can_read(path)) return 0;
  std::vector<ByteRange> kept;
  DamagedLines damaged;
  FirstRecords first(form.several);
  int64_t bytes = 0, last = 0;
  bool whole = true;  // the last line has its line end
  for (LineReader line(path); line.next();) {
    bytes += line.bytes();
    whole = line.ended();
    if (line.line().find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::optional<LineRecord> record = record_of(line.line(), form);
    if (record && record->step > last_step) continue;
    if (first.take(record)) {
      add_range(line, kept);
      last = std::max(last, record->step);
      continue;
    }
    add_range(line, damaged.ranges);
    (record ? damaged.repeated : damaged.unreadable).push_back(line.number());
  }
  if (whole && (bytes == 0 || (kept.size() == 1 && kept[0].end - kept[0].begin == bytes))) return last;
  const File file = File::open_to_read(path);
  if (!damaged.ranges.empty()) set_aside(file, damaged);
  PartialPath partial(fmt::format("{}.{}-0.partial", path, ::getpid()));
  std::error_code ignored;
  std::filesystem::remove(partial.path(), ignored);
  partial.created();
  {
    const File fresh = File::create(partial.path());
    append_ranges(file, kept, fresh);
  }
  partial.put_at(path);
  return last;
}

}  // namespace megatrain
