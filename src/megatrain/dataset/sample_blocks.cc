#include "megatrain/dataset/sample_blocks.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/dataset/convert_command.h"
#include "megatrain/unicode/unicode.h"

namespace megatrain {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kBlank = " \t\r\n";
constexpr int64_t kSkipBytes = kMiB;
constexpr int64_t kHeadBytes = 512;  // examined for the signs of other formats
constexpr size_t kTarPlace = 257;    // where a tar archive says so

using Phase = ReadPlace::Phase;

bool is_blank_line(std::string_view text) { return text.find_first_not_of(kBlank) == std::string_view::npos; }

// The beginning of an object written over several lines: a single brace is never complete JSON.
bool is_open_brace(std::string_view line) {
  const size_t brace = line.find('{');
  return brace != std::string_view::npos && is_blank_line(line.substr(0, brace)) &&
         is_blank_line(line.substr(brace + 1));
}

int64_t lines_in(std::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

// Finds the end of an array element that is fed in pieces.
class ElementScanner {
 public:
  // Position of the comma or bracket after the element, or npos if the element continues.
  size_t find_end(std::string_view text, size_t from) {
    for (size_t i = from; i < text.size(); ++i) {
      const char c = text[i];
      if (in_string_) {
        if (escaped_) {
          escaped_ = false;
        } else if (c == '\\') {
          escaped_ = true;
        } else if (c == '"') {
          in_string_ = false;
        }
      } else if (c == '"') {
        in_string_ = true;
      } else if (depth_ == 0 && (c == ',' || c == ']')) {
        return i;
      } else if (c == '{' || c == '[') {
        ++depth_;
      } else if ((c == '}' || c == ']') && depth_ > 0) {
        --depth_;
      }
    }
    return std::string_view::npos;
  }

 private:
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

// Where to cut the first document off a longer text.
size_t document_end(std::string_view text) {
  if (const size_t newline = text.rfind('\n'); newline != std::string_view::npos) return newline + 1;
  if (const size_t space = text.rfind(' '); space != std::string_view::npos && space > 0) return space;
  size_t end = text.size();
  while (end > 1 && text.size() - end < 4 && !is_utf8_boundary(text[end - 1])) --end;
  return end > 1 ? end - 1 : text.size();
}

// `head` is the beginning of the unpacked file.
void refuse_binary(const std::string& path, std::string_view head) {
  const auto refuse = [&](const char* what, const std::string& advice) {
    fail_input(fmt::format("{} is {}, which is not supported; {}.", path, what, advice));
  };
  if (head.starts_with("\xfd"
                       "7zXZ")) {
    const std::string out = path + ".unpacked" + std::filesystem::path(path).extension().string();
    refuse("compressed by xz", fmt::format("unpack it: {}, and give {}", unpack_command("unxz -c", path, out), out));
  }
  if (head.starts_with("PK\x03\x04")) refuse("a zip archive", "unpack it with unzip");
  if (head.starts_with("\x1f\x8b") || head.starts_with("\x28\xb5\x2f\xfd"))
    refuse("compressed twice", "unpack it once with gunzip or unzstd");
  if (head.size() > kTarPlace && head.substr(kTarPlace).starts_with("ustar"))
    refuse("a tar archive", "unpack it with tar");
  for (const auto& [magic, ending] : {std::pair{"PAR1", ".parquet"}, std::pair{"ARROW1", ".arrow"}}) {
    if (head.starts_with(magic))
      fail_input(fmt::format("{} is a table by its first bytes ({}), but not by its name; rename it to end in {}.",
                             path, magic, ending));
  }
}

}  // namespace

std::string_view SampleBlock::good_text(const RawSample& sample) const {
  if (!sample.bad.empty()) fail_input(sample.bad);
  const std::string_view whole = text(sample);
  if (const size_t at = find_invalid_utf8(whole); at != std::string_view::npos) {
    if (sample.offset < 0)
      fail_input(fmt::format("the row has a byte that is not UTF-8, 0x{:02x}; convert the file to UTF-8",
                             static_cast<unsigned char>(whole[at])));
    fail_input(fmt::format("byte {} of the file, 0x{:02x}, is not UTF-8; convert the file to UTF-8",
                           sample.offset + static_cast<int64_t>(at), static_cast<unsigned char>(whole[at])));
  }
  return whole;
}

SampleBlocks::SampleBlocks(std::vector<SampleFile> files, const BlockLimits& limits, const ReadPlace& from)
    : files_(std::move(files)), limits_(limits), place_(from) {}

bool SampleBlocks::next(SampleBlock& block) {
  block = {};
  while (place_.file < static_cast<int64_t>(files_.size())) {
    if (static_cast<int64_t>(block.bytes.size()) > limits_.block_bytes / 2) break;
    if (!open_file()) continue;
    switch (place_.phase) {
      case Phase::start: begin_file(); break;
      case Phase::lines: read_lines(block); break;
      case Phase::first_element:
      case Phase::element: read_elements(block); break;
      case Phase::array_end: read_array_end(block); break;
      case Phase::document: read_document(block); break;
      case Phase::records: read_records(block); break;
      case Phase::rows: read_rows(block); break;
    }
  }
  if (source_ != nullptr) place_.stored_bytes = source_->stored_bytes(place_.offset);
  block.after = place_;
  return !block.samples.empty() || place_.file < static_cast<int64_t>(files_.size());
}

// False if the file has been read completely; place_ is then at the next one.
bool SampleBlocks::open_file() {
  const FileKind kind = files_[static_cast<size_t>(place_.file)].kind;
  if (kind == FileKind::parquet || kind == FileKind::arrow) {
    if (table_ == nullptr) begin_table();
    place_.stored_bytes = table_->stored_bytes();
    if (!table_->at_end()) return true;
    close_file();
    return false;
  }
  if (source_ == nullptr) {
    source_ = std::make_unique<ByteSource>(files_[static_cast<size_t>(place_.file)].path);
    if (place_.phase == Phase::records) begin_csv();
  }
  source_->forget_before(place_.offset);
  place_.stored_bytes = source_->stored_bytes(place_.offset);
  const bool in_array = place_.phase == Phase::first_element || place_.phase == Phase::element;
  if (in_array || !ends_at(place_.offset)) return true;
  close_file();
  return false;
}

void SampleBlocks::close_file() {
  source_.reset();
  table_.reset();
  place_ = {.file = place_.file + 1};
}

// Appends up to `bytes` of the file from `at` on, fewer at its end. Returns how many.
int64_t SampleBlocks::read_more(std::string& buffer, int64_t at, int64_t bytes) const {
  return source_->read(buffer, at, bytes);
}

// How much to read at once so that the block keeps its size.
int64_t SampleBlocks::fair_bytes(const SampleBlock& block) const {
  return std::max<int64_t>(1, limits_.block_bytes - static_cast<int64_t>(block.bytes.size()));
}

// How much more to read of a sample that has `held` bytes and continues: as much again, but little beyond the limit.
int64_t SampleBlocks::more_bytes(size_t held) const {
  const int64_t bytes = static_cast<int64_t>(held);
  return std::max<int64_t>(1, std::min(bytes, limits_.sample_bytes + 2 - bytes));
}

void SampleBlocks::add(SampleBlock& block, int64_t line, int64_t offset, size_t begin, size_t end) const {
  block.samples.push_back({.file = static_cast<int32_t>(place_.file),
                           .json = files_[static_cast<size_t>(place_.file)].json,
                           .line = line,
                           .offset = offset,
                           .begin = begin,
                           .end = end});
}

void SampleBlocks::add_bad(SampleBlock& block, int64_t line, std::string what) const {
  add(block, line, place_.offset, 0, 0);
  block.samples.back().bad = std::move(what);
}

void SampleBlocks::begin_file() {
  const SampleFile& file = files_[static_cast<size_t>(place_.file)];
  std::string head;
  read_more(head, 0, kHeadBytes);
  refuse_binary(file.path, head);
  if (head.starts_with(kByteOrderMark)) place_.offset = static_cast<int64_t>(kByteOrderMark.size());
  if (file.kind == FileKind::csv || file.kind == FileKind::tsv) {
    begin_csv();
    return;
  }
  if (!file.json) {
    place_.phase = file.lines ? Phase::lines : Phase::document;
    return;
  }
  int64_t line = 1;
  int64_t at = place_.offset;
  while (!ends_at(at)) {
    std::string text;
    const int64_t bytes = read_more(text, at, kSkipBytes);
    const size_t first = text.find_first_not_of(kBlank);
    if (first != std::string::npos) {
      line += lines_in(std::string_view(text).substr(0, first));
      if (text[first] == '[') {
        place_ = {.file = place_.file,
                  .offset = at + static_cast<int64_t>(first) + 1,
                  .line = line,
                  .phase = Phase::first_element};
      } else {
        place_.phase = Phase::lines;
      }
      return;
    }
    line += lines_in(text);
    at += bytes;
  }
  place_.offset = at;
}

void SampleBlocks::read_lines(SampleBlock& block) {
  const size_t base = block.bytes.size();
  size_t end = std::string::npos;  // end of the whole lines
  int64_t at = place_.offset;
  for (int64_t bytes = fair_bytes(block);; bytes = more_bytes(block.bytes.size() - base)) {
    at += read_more(block.bytes, at, bytes);
    if (ends_at(at)) {
      end = block.bytes.size();
      break;
    }
    const size_t newline = block.bytes.rfind('\n');
    if (newline != std::string::npos && newline >= base) {
      end = newline + 1;
      break;
    }
    if (static_cast<int64_t>(block.bytes.size() - base) > limits_.sample_bytes + 1) {  // a line end may be two bytes
      block.bytes.resize(base);
      skip_long_line(block);
      return;
    }
  }
  block.bytes.resize(end);
  for (size_t begin = base; begin < end;) {
    const size_t newline = std::min(block.bytes.find('\n', begin), end);
    size_t last = newline;
    if (last > begin && block.bytes[last - 1] == '\r') --last;
    if (static_cast<int64_t>(last - begin) > limits_.sample_bytes) {
      add_bad(block, place_.line,
              fmt::format("the line is longer than {}, the most a sample may have; split it",
                          format_bytes(limits_.sample_bytes)));
    } else if (files_[static_cast<size_t>(place_.file)].json &&
               is_open_brace(std::string_view(block.bytes).substr(begin, last - begin))) {
      add_bad(block, place_.line,
              "an object spans several lines; put each object on one line (jq -c . does it), or all of them into an "
              "array: [{...}, {...}]");
    } else if (!is_blank_line(std::string_view(block.bytes).substr(begin, last - begin))) {
      add(block, place_.line, place_.offset + static_cast<int64_t>(begin - base), begin, last);
    }
    place_.line += newline < end ? 1 : 0;
    begin = newline + 1;
  }
  place_.offset += static_cast<int64_t>(end - base);
}

void SampleBlocks::skip_long_line(SampleBlock& block) {
  add_bad(block, place_.line,
          fmt::format("the line is longer than {}, the most a sample may have; split it",
                      format_bytes(limits_.sample_bytes)));
  std::string text;
  while (!ends_at(place_.offset)) {
    text.clear();
    const int64_t bytes = read_more(text, place_.offset, kSkipBytes);
    const size_t newline = text.find('\n');
    if (newline != std::string::npos) {
      place_.offset += static_cast<int64_t>(newline) + 1;
      place_.line++;
      return;
    }
    place_.offset += bytes;
  }
}

void SampleBlocks::read_elements(SampleBlock& block) {
  const size_t base = block.bytes.size();
  const int64_t origin = place_.offset;
  int64_t at = place_.offset;
  const auto move_to = [&](size_t next) {  // everything before `next` is done
    const size_t done = base + static_cast<size_t>(place_.offset - origin);
    place_.line += lines_in(std::string_view(block.bytes).substr(done, next - done));
    place_.offset = origin + static_cast<int64_t>(next - base);
  };
  size_t next = base;
  bool found = false;
  for (int64_t bytes = fair_bytes(block);; bytes = more_bytes(block.bytes.size() - base)) {
    at += read_more(block.bytes, at, bytes);
    const bool all = ends_at(at);
    while (true) {
      const size_t begin = block.bytes.find_first_not_of(kBlank, next);
      if (begin == std::string::npos) {
        next = block.bytes.size();
        move_to(next);
        if (all) add_bad(block, place_.line, "the file ends inside a JSON array; close it with ]");
        if (all) close_file();
        return;
      }
      if (block.bytes[begin] == ']') {
        move_to(begin);
        if (place_.phase == Phase::element) add_bad(block, place_.line, "the JSON array ends after a comma; remove it");
        move_to(begin + 1);
        place_.phase = Phase::array_end;
        block.bytes.resize(begin);
        return;
      }
      move_to(begin);
      next = begin;
      ElementScanner scanner;
      const size_t end = scanner.find_end(block.bytes, begin);
      if (end == std::string::npos) break;
      if (static_cast<int64_t>(end - begin) > limits_.sample_bytes) {
        add_bad(block, place_.line,
                fmt::format("the array's element is longer than {}, the most a sample may have; "
                            "split it",
                            format_bytes(limits_.sample_bytes)));
      } else {
        add(block, place_.line, place_.offset, begin, end);
      }
      found = true;
      next = end + 1;
      const bool last = block.bytes[end] == ']';
      move_to(next);
      place_.phase = last ? Phase::array_end : Phase::element;
      if (last) {
        block.bytes.resize(end);
        return;
      }
    }
    // The element continues beyond what was read. The next block starts at its beginning.
    if (found || next > base) {
      block.bytes.resize(next);
      return;
    }
    const bool too_long = static_cast<int64_t>(block.bytes.size() - next) > limits_.sample_bytes;
    if (too_long || all) block.bytes.resize(base);
    if (too_long) {
      skip_long_element(block);
      return;
    }
    if (all) {
      add_bad(block, place_.line, "the file ends inside this element of a JSON array; complete or remove it");
      close_file();
      return;
    }
  }
}

void SampleBlocks::skip_long_element(SampleBlock& block) {
  add_bad(block, place_.line,
          fmt::format("the array's element is longer than {}, the most a sample may have; split it",
                      format_bytes(limits_.sample_bytes)));
  ElementScanner scanner;
  std::string text;
  while (!ends_at(place_.offset)) {
    text.clear();
    const int64_t bytes = read_more(text, place_.offset, kSkipBytes);
    const size_t end = scanner.find_end(text, 0);
    if (end != std::string::npos) {
      place_.line += lines_in(std::string_view(text).substr(0, end));
      place_.offset += static_cast<int64_t>(end) + 1;
      place_.phase = text[end] == ']' ? Phase::array_end : Phase::element;
      return;
    }
    place_.line += lines_in(text);
    place_.offset += bytes;
  }
  close_file();  // the element has no end
}

void SampleBlocks::read_array_end(SampleBlock& block) {
  std::string text;
  const int64_t bytes = read_more(text, place_.offset, kSkipBytes);
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string::npos) {
    place_.line += lines_in(text);
    place_.offset += bytes;
    return;
  }
  place_.line += lines_in(std::string_view(text).substr(0, first));
  add_bad(block, place_.line, "something follows the end of the JSON array; remove it, or put one object on each line");
  close_file();
}

void SampleBlocks::read_document(SampleBlock& block) {
  const size_t base = block.bytes.size();
  read_more(block.bytes, place_.offset, limits_.document_bytes);
  size_t end = block.bytes.size();
  if (!ends_at(place_.offset + static_cast<int64_t>(end - base))) {
    end = base + document_end(std::string_view(block.bytes).substr(base));
    block.bytes.resize(end);
  }
  const std::string_view text = std::string_view(block.bytes).substr(base);
  if (!is_blank_line(text)) add(block, place_.line, place_.offset, base, end);
  place_.line += lines_in(text);
  place_.offset += static_cast<int64_t>(end - base);
}

// Reads the header, and goes behind it if nothing of the file was read yet.
void SampleBlocks::begin_csv() {
  const SampleFile& file = files_[static_cast<size_t>(place_.file)];
  std::string text;
  int64_t at = 0;
  size_t end = std::string::npos;
  const auto read_header = [&](char separator) {
    CsvScanner scanner(separator);
    text.clear();
    at = 0;
    do {
      if (std::ssize(text) > limits_.sample_bytes)
        fail_input(fmt::format("{}: the header does not end within {}; expected a line of column names.", file.path,
                               format_bytes(limits_.sample_bytes)));
      const size_t held = text.size();
      at += read_more(text, at, kSkipBytes);
      end = scanner.find_end(text, held);
    } while (end == std::string::npos && !ends_at(at));
    end = std::min(end, text.size());
  };
  read_header(file.kind == FileKind::tsv ? '\t' : ',');
  separator_ = file.kind == FileKind::tsv ? '\t' : csv_separator(std::string_view(text).substr(0, end));
  read_header(separator_);
  std::string_view header = std::string_view(text).substr(0, end);
  if (header.starts_with(kByteOrderMark)) header.remove_prefix(kByteOrderMark.size());
  if (header.ends_with('\r')) header.remove_suffix(1);
  if (const std::string bad = split_csv(header, separator_, columns_); !bad.empty())
    fail_input(fmt::format("{}:1: {}.", file.path, bad));
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (std::find(columns_.begin(), columns_.begin() + static_cast<std::ptrdiff_t>(i), columns_[i]) ==
        columns_.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    fail_input(
        fmt::format("{}:1: the header has the column {} twice; rename one of them. A table begins with a line of "
                    "column names.",
                    file.path, printable(columns_[i])));
  }
  if (place_.phase == Phase::records) return;
  const std::string_view whole = std::string_view(text).substr(0, std::min(end + 1, text.size()));
  place_ = {.file = place_.file, .offset = std::ssize(whole), .line = 1 + lines_in(whole), .phase = Phase::records};
}

void SampleBlocks::read_records(SampleBlock& block) {
  std::string text;
  CsvScanner scanner(separator_);
  int64_t at = place_.offset;
  size_t scanned = 0, begin = 0;
  for (int64_t bytes = fair_bytes(block);; bytes = more_bytes(text.size())) {
    at += read_more(text, at, bytes);
    const bool all = ends_at(at);
    while (true) {
      size_t end = scanner.find_end(text, scanned);
      scanned = end == std::string::npos ? text.size() : end + 1;
      if (end == std::string::npos && !(all && begin < text.size())) break;
      end = std::min(end, text.size());
      const std::string_view record = std::string_view(text).substr(begin, end - begin);
      add_record(block, record);
      const size_t next = std::min(end + 1, text.size());
      place_.line += lines_in(std::string_view(text).substr(begin, next - begin));
      place_.offset += static_cast<int64_t>(next - begin);
      begin = next;
    }
    if (all || begin > 0) return;
    if (std::ssize(text) <= limits_.sample_bytes) continue;
    // Quotes that never end make the rest of a file one record.
    add_bad(block, place_.line,
            fmt::format("the row is longer than {}, the most a sample may have; check its quotes",
                        format_bytes(limits_.sample_bytes)));
    close_file();
    return;
  }
}

void SampleBlocks::add_record(SampleBlock& block, std::string_view record) {
  if (record.ends_with('\r')) record.remove_suffix(1);
  if (is_blank_line(record) && columns_.size() > 1) return;
  if (record.empty()) return;
  if (const std::string bad = split_csv(record, separator_, cells_); !bad.empty()) {
    add_bad(block, place_.line, bad);
  } else if (cells_.size() != columns_.size()) {
    add_bad(block, place_.line,
            fmt::format("the row has {} cells, but the header {}; put cells that hold {} in quotes", cells_.size(),
                        columns_.size(), separator_ == '\t' ? "tabs" : fmt::format("'{}'", separator_)));
  } else {
    const size_t base = block.bytes.size();
    append_csv_object(block.bytes, columns_, cells_);
    add(block, place_.line, -1, base, block.bytes.size());
  }
}

void SampleBlocks::begin_table() {
  const SampleFile& file = files_[static_cast<size_t>(place_.file)];
  table_ = std::make_unique<TableRows>(
      file.path, file.kind == FileKind::parquet ? TableFormat::parquet : TableFormat::arrow, place_.offset);
  place_.phase = Phase::rows;
}

void SampleBlocks::read_rows(SampleBlock& block) {
  while (!table_->at_end() && std::ssize(block.bytes) <= limits_.block_bytes / 2) {
    const size_t base = block.bytes.size();
    const int64_t row = table_->row() + 1;
    if (table_->append_next(block.bytes, limits_.sample_bytes)) {
      add(block, row, -1, base, block.bytes.size());
    } else {
      add_bad(block, row,
              fmt::format("the row is longer than {}, the most a sample may have; split it",
                          format_bytes(limits_.sample_bytes)));
    }
  }
  place_ = {.file = place_.file,
            .offset = table_->row(),
            .line = table_->row() + 1,
            .phase = Phase::rows,
            .stored_bytes = table_->stored_bytes()};
}

}  // namespace megatrain
