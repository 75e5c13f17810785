#include "megatrain/train/state_files.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/export.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/model/layers.h"
#include "megatrain/store/pieces.h"

namespace megatrain {

namespace {

// One plane of one tensor, by the name it has in a state file.
struct Plane {
  const LayerRecord* record;
  const TensorSpec* tensor;
  enum class Kind { master, m, v } kind;

  void read(int64_t begin, int64_t count, float* out) const {
    if (kind == Kind::master) return record->read_master(tensor->offset + begin, count, out);
    record->read_moment(kind == Kind::m ? LayerRecord::Moment::first : LayerRecord::Moment::second,
                        tensor->state_offset + begin, count, out);
  }
};

std::map<std::string, Plane> planes_by_name(const std::vector<LayerRecord>& records) {
  std::map<std::string, Plane> planes;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      planes[tensor.name] = {&record, &tensor, Plane::Kind::master};
      if (!tensor.trainable) continue;
      planes[tensor.name + ".exp_avg"] = {&record, &tensor, Plane::Kind::m};
      planes[tensor.name + ".exp_avg_sq"] = {&record, &tensor, Plane::Kind::v};
    }
  }
  return planes;
}

// Calls work(begin, values, count) over a plane in pieces.
template <class Work>
void for_values(const Plane& plane, std::vector<float>& scratch, const Work& work) {
  scratch.resize(static_cast<size_t>(kPiece));
  for (int64_t at = 0; at < plane.tensor->elements(); at += kPiece) {
    const int64_t count = std::min(kPiece, plane.tensor->elements() - at);
    plane.read(at, count, scratch.data());
    work(at, scratch.data(), count);
  }
}

}  // namespace

void init_weights(const ModelConfig& config, uint64_t seed, std::vector<LayerRecord>& records, int threads) {
  for_pieces(records, threads, [&](const Piece& piece, float* scratch) {
    init_tensor(config, *piece.tensor, seed, piece.begin, piece.count, scratch);
    piece.record->write_master(piece.tensor->offset + piece.begin, piece.count, scratch);
  });
}

void export_model(const std::string& directory, const ExportTexts& texts, const TensorTypes& types,
                  const std::vector<LayerRecord>& records) {
  ExportRequest request{.directory = directory,
                        .config_json = texts.config_json,
                        .source_directory = texts.source_directory,
                        .chat_template = texts.chat_template};
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors)
      request.tensors.push_back({tensor.name, types.at(tensor.name), tensor_shape(tensor)});
  }
  ModelExport out(std::move(request));
  std::vector<float> scratch;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      for_values(
          {&record, &tensor, Plane::Kind::master}, scratch,
          [&](int64_t begin, const float* values, int64_t count) { out.write_f32(tensor.name, begin, values, count); });
    }
  }
  out.finish();
}

void save_state(const std::string& path, int64_t step, const std::vector<LayerRecord>& records) {
  const std::map<std::string, Plane> planes = planes_by_name(records);
  std::vector<TensorDeclaration> tensors;
  for (const auto& [name, plane] : planes) tensors.push_back({name, DType::f32, tensor_shape(*plane.tensor)});
  SafetensorsWriter out(path, std::move(tensors), {{"format", "pt"}, {"step", std::to_string(step)}});
  std::vector<float> scratch;
  for (const auto& [name, plane] : planes) {
    for_values(plane, scratch, [&, &name = name](int64_t begin, const float* values, int64_t count) {
      out.write_f32(name, begin, values, count);
    });
  }
  out.finish();
}

void load_state(const std::string& path, std::vector<LayerRecord>& records, int threads) {
  try {
    const ModelFiles file(path);
    for_pieces(records, threads, [&](const Piece& piece, float* scratch) {
      const std::vector<int64_t> shape = tensor_shape(*piece.tensor);
      const auto read = [&](const std::string& name) {
        read_as_f32(file.parameter(name, shape), piece.begin, piece.count, scratch);
        return scratch;
      };
      piece.record->write_master(piece.tensor->offset + piece.begin, piece.count, read(piece.tensor->name));
      if (!piece.tensor->trainable) return;
      const int64_t at = piece.tensor->state_offset + piece.begin;
      piece.record->write_moment(LayerRecord::Moment::first, at, piece.count, read(piece.tensor->name + ".exp_avg"));
      piece.record->write_moment(LayerRecord::Moment::second, at, piece.count,
                                 read(piece.tensor->name + ".exp_avg_sq"));
    });
  } catch (const Error& error) {
    fail(ExitCode::corrupt_checkpoint,
         fmt::format("the checkpoint cannot be read: {}; resume from an older one by removing this", error.what()));
  }
}

StateHash hash_state(const std::vector<LayerRecord>& records, int64_t step) {
  StateHasher hasher;
  std::vector<float> scratch;
  for (const auto& [name, plane] : planes_by_name(records)) {
    hasher.begin_tensor(name);
    for_values(plane, scratch, [&](int64_t, const float* values, int64_t count) {
      hasher.update(values, static_cast<size_t>(count) * 4);
    });
    hasher.end_tensor();
  }
  return hasher.finish(step);
}

}  // namespace megatrain
