#include "megatrain/tables/arrow/tables.h"

#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

// A damaged file can ask for any amount. A sound one needs some pages and the rows of a batch.
constexpr int64_t kMostMemoryBytes = 4 * kGiB;
constexpr int64_t kBatchBytes = 8 * kMiB, kMostBatchRows = 2048;
constexpr int64_t kPageReadBytes = kMiB;  // of a column, read at once

// Arrow's memory up to a limit, beyond which it refuses.
class BoundedMemory : public arrow::MemoryPool {
 public:
  arrow::Status Allocate(int64_t bytes, int64_t alignment, uint8_t** out) override {
    ARROW_RETURN_NOT_OK(check(bytes));
    return pool_->Allocate(bytes, alignment, out);
  }
  arrow::Status Reallocate(int64_t old_bytes, int64_t bytes, int64_t alignment, uint8_t** at) override {
    ARROW_RETURN_NOT_OK(check(bytes - old_bytes));
    return pool_->Reallocate(old_bytes, bytes, alignment, at);
  }
  void Free(uint8_t* at, int64_t bytes, int64_t alignment) override { pool_->Free(at, bytes, alignment); }
  int64_t bytes_allocated() const override { return pool_->bytes_allocated(); }
  int64_t max_memory() const override { return pool_->max_memory(); }
  int64_t total_bytes_allocated() const override { return pool_->total_bytes_allocated(); }
  int64_t num_allocations() const override { return pool_->num_allocations(); }
  std::string backend_name() const override { return pool_->backend_name(); }

 private:
  arrow::Status check(int64_t more) const {
    if (more <= kMostMemoryBytes - pool_->bytes_allocated()) return arrow::Status::OK();
    return arrow::Status::OutOfMemory("it asks for more than ", format_bytes(kMostMemoryBytes), " at once");
  }

  arrow::MemoryPool* pool_ = arrow::system_memory_pool();
};

arrow::MemoryPool* memory() {
  static BoundedMemory memory;
  return &memory;
}

// Reads a file with our own errors.
class InputFile : public arrow::io::RandomAccessFile {
 public:
  explicit InputFile(const std::string& path) : file_(File::open_to_read(path)), bytes_(file_.bytes()) {}

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<int64_t> Tell() const override { return at_; }
  arrow::Status Seek(int64_t at) override {
    at_ = at;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> GetSize() override { return bytes_; }

  arrow::Result<int64_t> ReadAt(int64_t at, int64_t bytes, void* out) override {
    if (at < 0 || bytes < 0) return arrow::Status::IOError("it names a place before its beginning");
    const int64_t count = std::clamp<int64_t>(bytes_ - at, 0, bytes);
    try {
      file_.read_at(at, out, count);
    } catch (const Error& error) {
      return arrow::Status::IOError(error.what());
    }
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t at, int64_t bytes) override {
    bytes = std::clamp<int64_t>(bytes_ - at, 0, bytes);  // before memory is asked for
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(bytes, memory()));
    ARROW_ASSIGN_OR_RAISE(const int64_t count, ReadAt(at, bytes, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(count));
    return buffer;
  }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t count, ReadAt(at_, bytes, out));
    at_ += count;
    return count;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(at_, bytes));
    at_ += buffer->size();
    return buffer;
  }

 private:
  File file_;
  int64_t bytes_, at_ = 0;
  bool closed_ = false;
};

// One line, without the library's own paths.
std::string reason_of(const arrow::Status& status) {
  std::string reason = status.message();
  reason.resize(std::min(reason.find('\n'), reason.size()));
  while (reason.ends_with('.')) reason.pop_back();
  return printable(reason);
}

class ArrowTable : public TableReader {
 public:
  explicit ArrowTable(std::string path) : path_(std::move(path)) {}
  ~ArrowTable() override {
    if (schema_.release != nullptr) schema_.release(&schema_);
  }
  ArrowTable(const ArrowTable&) = delete;
  ArrowTable& operator=(const ArrowTable&) = delete;

  const ArrowSchema& schema() const override { return schema_; }
  int64_t first_row() const override { return first_row_; }
  bool next(TableBatch& out) override {
    out.release();
    return guarded([&] {
      std::shared_ptr<arrow::RecordBatch> batch;
      do {
        batch = read(out.stored_bytes);
        if (batch == nullptr) return false;
      } while (batch->num_rows() == 0);
      check(arrow::ExportRecordBatch(*batch, &out.array));
      return true;
    });
  }

 protected:
  virtual std::shared_ptr<arrow::RecordBatch> read(int64_t& stored_bytes) = 0;  // null at the end

  void check(const arrow::Status& status) const {
    if (status.ok()) return;
    fail_input(
        fmt::format("{} cannot be read as {}: {}; it is damaged, incomplete or of another kind: get it again, or "
                    "convert it to JSON Lines.",
                    path_, what(), reason_of(status)));
  }
  template <class T>
  T take(arrow::Result<T> result) const {
    check(result.status());
    return std::move(result).ValueUnsafe();
  }
  // Runs code of the library, parts of which throw.
  template <class Deed>
  std::invoke_result_t<Deed> guarded(const Deed& deed) const {
    try {
      return deed();
    } catch (const parquet::ParquetException& error) {
      check(arrow::Status::Invalid(error.what()));
    } catch (const std::bad_alloc&) {
      check(arrow::Status::OutOfMemory("it asks for more memory than there is"));
    } catch (const std::length_error& error) {
      check(arrow::Status::Invalid(error.what()));
    }
    fail_internal("a failed check returned");
  }
  void set_schema(const arrow::Schema& schema) { check(arrow::ExportSchema(schema, &schema_)); }
  virtual const char* what() const = 0;

  std::string path_;
  int64_t first_row_ = 0;

 private:
  ArrowSchema schema_{};
};

// Reads pages as they are needed, not whole row groups.
class ParquetTable : public ArrowTable {
 public:
  ParquetTable(const std::string& path, int64_t row) : ArrowTable(path) {
    auto input = std::make_shared<InputFile>(path);
    guarded([&]() -> bool {
      stored_bytes_ = take(input->GetSize());
      parquet::ReaderProperties pages(memory());
      pages.enable_buffered_stream();
      pages.set_buffer_size(kPageReadBytes);
      parquet::ArrowReaderProperties rows(/*use_threads=*/false);
      rows.set_pre_buffer(false);
      rows.set_batch_size(kMostBatchRows);
      parquet::arrow::FileReaderBuilder builder;
      check(builder.Open(input, pages));
      check(builder.memory_pool(memory())->properties(rows)->Build(&reader_));
      std::shared_ptr<arrow::Schema> schema;
      check(reader_->GetSchema(&schema));
      set_schema(*schema);
      all_rows_ = std::max<int64_t>(1, reader_->parquet_reader()->metadata()->num_rows());
      for (; group_ < reader_->num_row_groups(); ++group_) {
        const int64_t rows_of_group = group_rows(group_);
        if (first_row_ + rows_of_group > row) break;
        first_row_ += rows_of_group;
      }
      row_ = first_row_;
      return true;
    });
  }

 protected:
  std::shared_ptr<arrow::RecordBatch> read(int64_t& stored_bytes) override {
    while (true) {
      if (batches_ == nullptr) {
        if (group_ >= reader_->num_row_groups()) return nullptr;
        const auto group = reader_->parquet_reader()->metadata()->RowGroup(group_);
        const int64_t row_bytes = group->total_byte_size() / std::max<int64_t>(1, group->num_rows());
        reader_->set_batch_size(std::clamp<int64_t>(kBatchBytes / std::max<int64_t>(1, row_bytes), 1, kMostBatchRows));
        batches_ = take(reader_->GetRecordBatchReader(std::vector<int>{group_++}));
        rows_left_ = group->num_rows();
      }
      std::shared_ptr<arrow::RecordBatch> batch;
      check(batches_->ReadNext(&batch));
      if (batch == nullptr) {
        if (rows_left_ > 0) check(arrow::Status::Invalid("a row group has fewer rows than it says"));
        batches_ = nullptr;
        continue;
      }
      check(batch->Validate());
      rows_left_ -= batch->num_rows();
      row_ += batch->num_rows();
      stored_bytes = static_cast<int64_t>(static_cast<double>(stored_bytes_) *
                                          std::min(1.0, static_cast<double>(row_) / static_cast<double>(all_rows_)));
      return batch;
    }
  }
  const char* what() const override { return "Parquet"; }

 private:
  int64_t group_rows(int group) const {
    const int64_t rows = reader_->parquet_reader()->metadata()->RowGroup(group)->num_rows();
    if (rows < 0) check(arrow::Status::Invalid("a row group has a negative number of rows"));
    return rows;
  }

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;  // of one row group
  int group_ = 0;                                      // the next one
  int64_t rows_left_ = 0;                              // of the current one
  int64_t row_ = 0, all_rows_ = 0, stored_bytes_ = 0;
};

// The file is mapped: a batch may be as large as the file.
class IpcTable : public ArrowTable {
 public:
  IpcTable(const std::string& path, int64_t row) : ArrowTable(path), file_(path) {
    guarded([&]() -> bool {
      input_ = std::make_shared<arrow::io::BufferReader>(
          std::make_shared<arrow::Buffer>(reinterpret_cast<const uint8_t*>(file_.data()), file_.bytes()));
      arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
      options.memory_pool = memory();
      options.use_threads = false;
      constexpr std::string_view kMagic = "ARROW1";
      const std::string_view all(reinterpret_cast<const char*>(file_.data()), static_cast<size_t>(file_.bytes()));
      if (all.starts_with(kMagic)) {
        whole_ = take(arrow::ipc::RecordBatchFileReader::Open(input_, options));
        set_schema(*whole_->schema());
      } else {
        stream_ = take(arrow::ipc::RecordBatchStreamReader::Open(input_, options));
        set_schema(*stream_->schema());
      }
      // Batches before the row are read, which costs little as they are mapped.
      while (true) {
        kept_ = next_batch();
        if (kept_ == nullptr || first_row_ + kept_->num_rows() > row) break;
        first_row_ += kept_->num_rows();
      }
      return true;
    });
  }

 protected:
  std::shared_ptr<arrow::RecordBatch> read(int64_t& stored_bytes) override {
    std::shared_ptr<arrow::RecordBatch> batch = kept_ != nullptr ? std::exchange(kept_, nullptr) : next_batch();
    if (batch == nullptr) return nullptr;
    check(batch->ValidateFull());
    file_.check_whole();
    stored_bytes = whole_ != nullptr ? static_cast<int64_t>(static_cast<double>(file_.bytes()) * next_ /
                                                            std::max(1, whole_->num_record_batches()))
                                     : take(input_->Tell());
    return batch;
  }
  const char* what() const override { return "Arrow"; }

 private:
  std::shared_ptr<arrow::RecordBatch> next_batch() {
    if (whole_ != nullptr)
      return next_ < whole_->num_record_batches() ? take(whole_->ReadRecordBatch(next_++)) : nullptr;
    std::shared_ptr<arrow::RecordBatch> batch;
    check(stream_->ReadNext(&batch));
    return batch;
  }

  MappedFile file_;
  std::shared_ptr<arrow::io::BufferReader> input_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> whole_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> stream_;
  std::shared_ptr<arrow::RecordBatch> kept_;  // read while looking for the first one
  int next_ = 0;                              // batch of `whole_`
};

}  // namespace

bool has_arrow() { return true; }

std::unique_ptr<TableReader> open_table(const std::string& path, TableFormat format, int64_t row) {
  if (format == TableFormat::parquet) return std::make_unique<ParquetTable>(path, row);
  return std::make_unique<IpcTable>(path, row);
}

}  // namespace megatrain
