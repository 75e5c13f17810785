#include "megatrain/model/load_weights.h"

#include <set>

#include "megatrain/hub/convert.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/store/pieces.h"

namespace megatrain {

std::vector<int64_t> tensor_shape(const TensorSpec& tensor) {
  return tensor.vector ? std::vector<int64_t>{tensor.cols} : std::vector<int64_t>{tensor.rows, tensor.cols};
}

LoadReport load_weights(const std::string& directory, std::vector<LayerRecord>& records, int threads) {
  const ModelFiles files(directory);
  LoadReport report;
  std::set<std::string> used;
  // every tensor is looked at before the first byte is read, so that a wrong file is refused at once
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      const StoredTensor& stored = files.parameter(tensor.name, tensor_shape(tensor));
      report.types[tensor.name] = *parameter_type(stored.dtype);
      used.insert(tensor.name);
    }
  }
  for (const StoredTensor* stored : files.tensors()) {
    if (!used.count(stored->name)) report.unused.push_back(stored->name);
  }
  for_pieces(records, threads, "loading the weights", [&](const TensorPiece& piece, float* scratch) {
    const StoredTensor& stored = *files.find(piece.tensor->name);
    read_as_f32(stored, piece.begin, piece.count, scratch);
    piece.record->write_master(piece.tensor->offset + piece.begin, piece.count, scratch);
    if (piece.begin + piece.count == piece.tensor->elements()) release_pages(stored);
  });
  return report;
}

}  // namespace megatrain
