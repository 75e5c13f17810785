// The weights of frozen records, read from the safetensors files of their model whenever they are needed. No copy of
// them exists. The bytes of a file are converted on the way: see docs/architecture.md, "The base in its own files".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/io/file_reader.h"
#include "megatrain/store/weight_source.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

class BaseFiles : public WeightSource {
 public:
  // `layouts`: of all records. `wanted`: those to be read here, in which nothing is trained. Reads only headers. Throws
  // Error(bad_input) as load_weights() does.
  BaseFiles(const std::string& directory, std::vector<LayerLayout> layouts, const std::vector<bool>& wanted,
            FileReaderOptions options = {});
  ~BaseFiles() override;

  void read(int64_t record, int64_t begin, int64_t bytes, std::byte* out) override;

  // The first time that a whole record is read, its weights are checked to be finite.
  void read_whole(int64_t record, std::byte* out, int64_t next) override;

  bool direct() const override { return reader_->direct(); }

 private:
  struct Record;
  void fill_gaps(const Record& record, int64_t begin, int64_t bytes, std::byte* out) const;
  void check_finite(int64_t record, const std::byte* weights) const;
  void check_fp8_piece(const std::byte* weights, const TensorSpec& tensor, int64_t begin, int64_t count) const;

  std::string directory_;
  std::vector<LayerLayout> layouts_;
  std::vector<Record> records_;
  std::unique_ptr<FileReader> reader_;
};

// Bytes of a record's weights in files with tensors of these types; 0 if some tensor is not among them.
int64_t file_bytes(const LayerLayout& layout, const TensorTypes& stored);

}  // namespace megatrain
