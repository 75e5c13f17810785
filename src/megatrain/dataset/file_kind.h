// What a data file holds, by its name.
#pragma once

#include <string>

namespace megatrain {

enum class FileKind {
  text,  // a document, or one per line
  json,  // JSON Lines, or one array
  csv,
  tsv,
  parquet,
  arrow,
  unread,  // a known type that is not supported
  other,   // an unknown ending
};

// By the ending of the name, without a .gz or .zst behind it: "a.csv.gz" is a table. Tables of Parquet and Arrow are
// never compressed so.
FileKind kind_of_file(const std::string& path);

// Whether it holds one sample in each row or line.
bool holds_rows(FileKind kind);
inline bool holds_rows(const std::string& path) { return holds_rows(kind_of_file(path)); }

// "json", "csv": for messages and identities.
const char* word_of(FileKind kind);

// Whether the name says that the file is compressed by gzip or zstd.
bool is_packed_name(const std::string& path);

// Error(bad_input) that says what to do: for a kind that is not supported, and for Parquet and Arrow files in a build
// without Apache Arrow.
void refuse_unread(const std::string& path);

// The same in the middle of a sentence: `a Parquet file, which ...; convert it ...`. Empty for a file that can be read.
std::string unread_advice(const std::string& path);

}  // namespace megatrain
