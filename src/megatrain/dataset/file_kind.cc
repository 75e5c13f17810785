#include "megatrain/dataset/file_kind.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/dataset/convert_command.h"
#include "megatrain/tables/arrow/tables.h"

namespace megatrain {
namespace {

struct Ending {
  std::string_view ending;
  FileKind kind;
};
constexpr Ending kEndings[] = {
    {".jsonl", FileKind::json},      {".jsonlines", FileKind::json}, {".ndjson", FileKind::json},
    {".json", FileKind::json},       {".csv", FileKind::csv},        {".tsv", FileKind::tsv},
    {".parquet", FileKind::parquet}, {".arrow", FileKind::arrow},    {".feather", FileKind::arrow},
    {".ipc", FileKind::arrow},       {".txt", FileKind::text},       {".text", FileKind::text},
    {".md", FileKind::text},         {".markdown", FileKind::text},  {".rst", FileKind::text},
    {".tex", FileKind::text},
};
constexpr std::string_view kPackings[] = {".gz", ".zst"};

// Types that are not read. `reader` is a pandas function that opens the file; if it is empty, `advice` says what to do.
// Cells of tables stay text, unchanged: an answer may be 7, 007 or NA.
struct Unread {
  std::string_view ending;
  const char *what, *reader, *advice;
};
constexpr Unread kUnread[] = {
    {".orc", "an ORC file", "read_orc(sys.argv[1])", ""},
    {".xlsx", "a table", "read_excel(sys.argv[1], dtype=str, keep_default_na=False)", ""},
    {".xz", "compressed", "", "unpack it with unxz"},
    {".bz2", "compressed", "", "unpack it with bunzip2"},
    {".lz4", "compressed", "", "unpack it with unlz4"},
    {".zip", "compressed", "", "unpack it with unzip"},
    {".7z", "compressed", "", "unpack it with 7z x"},
    {".tar", "an archive", "", "unpack it with tar"},
    {".tgz", "an archive", "", "unpack it with tar"},
    {".pkl", "a pickle", "", "write its samples to a JSON Lines file"},
};

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

std::string ending_of(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string ending = lower_case(whole.extension().string());
  if (std::find(std::begin(kPackings), std::end(kPackings), ending) == std::end(kPackings)) return ending;
  return lower_case(whole.stem().extension().string());
}

const Unread* unread(const std::string& path) {
  const std::string ending = ending_of(path);
  const auto* const found =
      std::find_if(std::begin(kUnread), std::end(kUnread), [&](const Unread& each) { return each.ending == ending; });
  return found == std::end(kUnread) ? nullptr : found;
}

std::string convert_advice(const std::string& path, const char* reader) {
  const std::string out = std::filesystem::path(path).replace_extension(".jsonl").string();
  return fmt::format("convert it to JSON Lines: {}, and give {}", pandas_command(reader, path, out), out);
}

// For a build without Arrow.
std::string arrow_advice(const std::string& path, FileKind kind) {
  const std::string out = std::filesystem::path(path).replace_extension(".jsonl").string();
  const std::string command = kind == FileKind::parquet
                                  ? pandas_command("read_parquet(sys.argv[1])", path, out)
                                  : python_command(
                                        "import sys, datasets; datasets.Dataset.from_file(sys.argv[1]).to_json("
                                        "sys.argv[2], force_ascii=False)",
                                        path, out);
  return fmt::format(
      "{}, for which this megatrain was built without Apache Arrow; in a clone run tools/install --arrow, or convert "
      "it "
      "to JSON Lines: {}, and give {}",
      kind == FileKind::parquet ? "a Parquet file" : "an Arrow file", command, out);
}

}  // namespace

FileKind kind_of_file(const std::string& path) {
  const std::string ending = ending_of(path);
  for (const Ending& each : kEndings) {
    if (each.ending != ending) continue;
    if (is_packed_name(path) && (each.kind == FileKind::parquet || each.kind == FileKind::arrow))
      return FileKind::unread;
    return each.kind;
  }
  return unread(path) != nullptr ? FileKind::unread : FileKind::other;
}

bool holds_rows(FileKind kind) {
  return kind == FileKind::json || kind == FileKind::csv || kind == FileKind::tsv || kind == FileKind::parquet ||
         kind == FileKind::arrow;
}

const char* word_of(FileKind kind) {
  switch (kind) {
    case FileKind::text: return "text";
    case FileKind::json: return "JSON";
    case FileKind::csv: return "CSV";
    case FileKind::tsv: return "TSV";
    case FileKind::parquet: return "Parquet";
    case FileKind::arrow: return "Arrow";
    case FileKind::unread:
    case FileKind::other: break;
  }
  return "other";
}

bool is_packed_name(const std::string& path) {
  const std::string ending = lower_case(std::filesystem::path(path).extension().string());
  return std::find(std::begin(kPackings), std::end(kPackings), ending) != std::end(kPackings);
}

std::string unread_advice(const std::string& path) {
  const FileKind kind = kind_of_file(path);
  if (kind == FileKind::unread) {
    const Unread* const format = unread(path);
    if (format == nullptr) {
      const bool gzip = lower_case(std::filesystem::path(path).extension().string()) == ".gz";
      return fmt::format("a compressed table, which is not supported; unpack it with {}", gzip ? "gunzip" : "unzstd");
    }
    return fmt::format("{}, which is not supported; {}", format->what,
                       format->advice[0] != '\0' ? format->advice : convert_advice(path, format->reader));
  }
  const bool table = kind == FileKind::parquet || kind == FileKind::arrow;
  return table && !has_arrow() ? arrow_advice(path, kind) : "";
}

void refuse_unread(const std::string& path) {
  if (const std::string advice = unread_advice(path); !advice.empty())
    fail_input(fmt::format("{} is {}.", path, advice));
}

}  // namespace megatrain
