#include "megatrain/train/state_files.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/finite.h"
#include "megatrain/base/number_text.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/export.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/model/model.h"
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

std::map<std::string, Plane> masters_by_name(const std::vector<LayerRecord>& records) {
  std::map<std::string, Plane> planes;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors)
      planes[tensor.name] = {&record, &tensor, Plane::Kind::master};
  }
  return planes;
}

std::map<std::string, Plane> planes_by_name(const std::vector<LayerRecord>& records) {
  std::map<std::string, Plane> planes = masters_by_name(records);
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (!tensor.trainable) continue;
      planes[tensor.name + ".exp_avg"] = {&record, &tensor, Plane::Kind::m};
      planes[tensor.name + ".exp_avg_sq"] = {&record, &tensor, Plane::Kind::v};
    }
  }
  return planes;
}

struct PlanePiece {
  const std::string& name;
  const Plane& plane;
  int64_t begin, count;  // elements

  std::vector<float> read() const {
    std::vector<float> values(static_cast<size_t>(count));
    plane.read(begin, count, values.data());
    return values;
  }
};

// Calls work(index, piece) for every piece of the planes, on a team, and says how far `what` is. Indices ascend
// with names and within a tensor.
template <class Work>
void for_plane_pieces(const std::map<std::string, Plane>& planes, int threads, const std::string& what,
                      const Work& work) {
  std::vector<PlanePiece> pieces;
  for (const auto& [name, plane] : planes) {
    for (int64_t at = 0; at < plane.tensor->elements(); at += kPiece)
      pieces.push_back({name, plane, at, std::min(kPiece, plane.tensor->elements() - at)});
  }
  WorkProgress progress(what, std::ssize(pieces));
  parallel_for(threads, std::ssize(pieces), [&](int64_t i) {
    work(i, pieces[static_cast<size_t>(i)]);
    progress.add(1);
  });
}

// The hash of what bytes_of(piece) gives for each piece of the planes, a vector. Pieces are read side by side; each of
// the hasher's two halves takes them in order.
template <class BytesOf>
StateHash hash_planes(const std::map<std::string, Plane>& planes, std::optional<int64_t> step, int threads,
                      const std::string& what, const BytesOf& bytes_of) {
  StateHasher hasher;
  InOrder together, each;
  for_plane_pieces(planes, threads, what, [&](int64_t i, const PlanePiece& piece) {
    try {
      const auto values = bytes_of(piece);
      const size_t bytes = values.size() * sizeof(values[0]);
      together.pass(i, [&] { hasher.update_together(piece.name, values.data(), bytes); });
      each.pass(i, [&] { hasher.update_each(piece.name, values.data(), bytes); });
    } catch (...) {
      together.give_up();
      each.give_up();
      throw;
    }
  });
  return hasher.finish(step);
}

}  // namespace

void init_weights(const ModelConfig& config, uint64_t seed, std::vector<LayerRecord>& records, int threads) {
  for_pieces(records, threads, "drawing random weights", [&](const TensorPiece& piece, float* scratch) {
    init_tensor(config, *piece.tensor, seed, piece.begin, piece.count, scratch);
    piece.record->write_master(piece.tensor->offset + piece.begin, piece.count, scratch);
  });
}

StateHash export_model(const std::string& directory, const ExportTexts& texts, const TensorTypes& types,
                       const std::vector<LayerRecord>& records, int threads) {
  ExportRequest request{.directory = directory,
                        .config_json = texts.config_json,
                        .source_directory = texts.source_directory,
                        .chat_template = texts.chat_template};
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors)
      request.tensors.push_back({tensor.name, types.at(tensor.name), tensor_shape(tensor)});
  }
  ModelExport out(std::move(request));
  const StateHash hash =
      hash_planes(masters_by_name(records), {}, threads, "writing the model", [&](const PlanePiece& piece) {
        const DType type = types.at(piece.name);
        const int64_t width = dtype_bytes(type);
        std::vector<std::byte> bytes(static_cast<size_t>(piece.count * width));
        write_from_f32(piece.read().data(), piece.count, type, bytes.data());
        out.write(piece.name, piece.begin * width, bytes.data(), std::ssize(bytes));
        return bytes;
      });
  out.finish();
  return hash;
}

StateHash save_state(const std::string& path, int64_t step, const std::vector<LayerRecord>& records, int threads) {
  const std::map<std::string, Plane> planes = planes_by_name(records);
  std::vector<TensorDeclaration> tensors;
  for (const auto& [name, plane] : planes) tensors.push_back({name, DType::f32, tensor_shape(*plane.tensor)});
  SafetensorsWriter out(path, std::move(tensors), {{"format", "pt"}, {"step", std::to_string(step)}});
  const StateHash hash = hash_planes(planes, step, threads, "saving the state", [&](const PlanePiece& piece) {
    std::vector<float> values = piece.read();
    out.write_f32(piece.name, piece.begin, values.data(), piece.count);
    return values;
  });
  out.finish();
  return hash;
}

int64_t state_bytes(const std::vector<LayerRecord>& records) {
  int64_t elements = 0;
  for (const auto& [name, plane] : planes_by_name(records)) elements += plane.tensor->elements();
  return elements * static_cast<int64_t>(sizeof(float));
}

void load_state(const std::string& path, std::vector<LayerRecord>& records, int threads) {
  const ModelFiles file(path);
  for_pieces(records, threads, "reading the checkpoint", [&](const TensorPiece& piece, float* scratch) {
    const std::vector<int64_t> shape = tensor_shape(*piece.tensor);
    const auto read = [&](const std::string& name) {
      read_as_f32(file.parameter(name, shape), piece.begin, piece.count, scratch);
      const int64_t at = first_not_finite(scratch, piece.count);
      if (at >= 0)
        fail_input(fmt::format("{}: element {} of {} is {}, and a state has finite values alone", path,
                               piece.begin + at, name, number_text(scratch[at])));
      return scratch;
    };
    piece.record->write_master(piece.tensor->offset + piece.begin, piece.count, read(piece.tensor->name));
    if (!piece.tensor->trainable) return;
    const int64_t at = piece.tensor->state_offset + piece.begin;
    piece.record->write_moment(LayerRecord::Moment::first, at, piece.count, read(piece.tensor->name + ".exp_avg"));
    piece.record->write_moment(LayerRecord::Moment::second, at, piece.count, read(piece.tensor->name + ".exp_avg_sq"));
  });
}

StateHash hash_state(const std::vector<LayerRecord>& records, int64_t step, int threads) {
  return hash_planes(planes_by_name(records), step, threads, "hashing the state",
                     [](const PlanePiece& piece) { return piece.read(); });
}

}  // namespace megatrain
