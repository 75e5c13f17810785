// Reads the files of a dataset as blocks of whole samples, still as text. Takes a few MiB of memory, whatever their
// size. This is the one place that knows how samples are stored: files compressed by gzip or zstd are unpacked, and
// rows of CSV, TSV, Parquet and Arrow become the JSON objects that a JSON Lines file of the same rows has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/base/units.h"
#include "megatrain/dataset/file_kind.h"
#include "megatrain/io/byte_source.h"
#include "megatrain/tables/csv.h"
#include "megatrain/tables/table_rows.h"

namespace megatrain {

struct SampleFile {
  std::string path;
  bool json = false;                // lines, an array or a table of samples; otherwise a document
  bool lines = false;               // for text: one document per line
  FileKind kind = FileKind::other;  // decides only whether it is a table, and of which kind
};

// Where reading continues: a value that can be saved and resumed from.
struct ReadPlace {
  enum class Phase : int32_t { start, lines, first_element, element, array_end, document, records, rows };
  int64_t file = 0;
  int64_t offset = 0;  // in the unpacked file; in the phase `rows` the number of rows that were read
  int64_t line = 1;
  Phase phase = Phase::start;
  int64_t stored_bytes = 0;  // of the file as it is stored, read so far, roughly: for progress

  bool operator==(const ReadPlace&) const = default;
};

struct RawSample {
  int32_t file = 0;
  bool json = false;
  int64_t line = 0;           // where it begins, counted from 1; in Parquet and Arrow files its row
  int64_t offset = 0;         // in the unpacked file; -1: the text is not the file's own
  size_t begin = 0, end = 0;  // in the block
  std::string bad;            // what is wrong with it; such a sample has no text
};

struct SampleBlock {
  std::string bytes;
  std::vector<RawSample> samples;
  ReadPlace after;

  std::string_view text(const RawSample& sample) const {
    return std::string_view(bytes).substr(sample.begin, sample.end - sample.begin);
  }
  // The same. Error(bad_input) if the sample is bad or not UTF-8. Its message follows a place ("FILE:LINE: ") and has
  // no full stop.
  std::string_view good_text(const RawSample& sample) const;
};

// The largest sample and document. A longer line or array element is bad; a longer text file is split into documents.
inline constexpr int64_t kMaxSampleBytes = 256 * kMiB;
inline constexpr int64_t kMaxDocumentBytes = 16 * kMiB;

struct BlockLimits {
  int64_t block_bytes = 0;     // a block is larger only if a single sample is
  int64_t sample_bytes = 0;    // a longer line or element is bad
  int64_t document_bytes = 0;  // a longer text file is split: at line ends, else at spaces, else between characters
};

class SampleBlocks {
 public:
  SampleBlocks(std::vector<SampleFile> files, const BlockLimits& limits, const ReadPlace& from = {});

  // The next block, which may hold no sample; false at the end. Blank lines, blank documents and byte order marks are
  // skipped. Error(bad_input) for a file that is compressed or otherwise not text.
  bool next(SampleBlock& block);

 private:
  bool open_file();
  void close_file();
  void begin_file();
  void read_lines(SampleBlock& block);
  void read_elements(SampleBlock& block);
  void read_array_end(SampleBlock& block);
  void read_document(SampleBlock& block);
  void begin_csv();
  void read_records(SampleBlock& block);
  void add_record(SampleBlock& block, std::string_view record);
  void begin_table();
  void read_rows(SampleBlock& block);
  void skip_long_line(SampleBlock& block);
  void skip_long_element(SampleBlock& block);
  int64_t read_more(std::string& buffer, int64_t at, int64_t bytes) const;
  bool ends_at(int64_t at) const { return source_->ends_at(at); }
  int64_t fair_bytes(const SampleBlock& block) const;
  int64_t more_bytes(size_t held) const;
  void add(SampleBlock& block, int64_t line, int64_t offset, size_t begin, size_t end) const;
  void add_bad(SampleBlock& block, int64_t line, std::string what) const;

  std::vector<SampleFile> files_;
  BlockLimits limits_;
  ReadPlace place_;
  std::unique_ptr<ByteSource> source_;  // the open file
  // Of an open CSV or TSV file.
  char separator_ = ',';
  std::vector<std::string> columns_, cells_;
  std::unique_ptr<TableRows> table_;  // the open Parquet or Arrow file
};

}  // namespace megatrain
