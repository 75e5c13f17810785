#include "megatrain/train/state_files.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "megatrain/base/bf16.h"
#include "megatrain/base/error.h"
#include "megatrain/base/finite.h"
#include "megatrain/base/number_text.h"
#include "megatrain/hub/convert.h"
#include "megatrain/hub/export.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/model/model.h"
#include "megatrain/model/stored_tensors.h"
#include "megatrain/model/token_rows.h"
#include "megatrain/model/trained/adapter.h"
#include "megatrain/store/pieces.h"

namespace megatrain {

namespace {

// One plane of one tensor, under its name in a state file.
struct Plane {
  const LayerRecord* record;
  const TensorSpec* tensor;
  enum class Kind { master, m, v } kind;

  LayerRecord::Moment moment() const {
    return kind == Kind::m ? LayerRecord::Moment::first : LayerRecord::Moment::second;
  }
  void read(int64_t begin, int64_t count, float* out) const {
    if (kind == Kind::master) return record->read_master(*tensor, begin, count, out);
    record->read_moment(moment(), *tensor, begin, count, out);
  }

  DType stored_type() const {
    if (kind == Kind::master) return tensor->master;
    switch (record->layout().moments) {
      case MomentFormat::fp32: return DType::f32;
      case MomentFormat::bf16: return DType::bf16;
      case MomentFormat::int8: break;
    }
    return DType::u8;
  }
  bool coded() const { return stored_type() == DType::u8; }
};

// The dtype of a frozen tensor in its source.
const char* source_name(const TensorSpec& tensor) {
  return tensor.packing == WeightPacking::none ? dtype_name(tensor.dtype) : packing_name(tensor.packing);
}

std::vector<int64_t> scale_shape(const TensorSpec& tensor) {
  if (tensor.block_row() == tensor.elements()) return {tensor.blocks()};
  return {tensor.elements() / tensor.block_row(), tensor.row_blocks()};
}

// The blocks of a tensor that begin within a range of its elements.
struct BlockRange {
  int64_t begin, count;
};
BlockRange blocks_beginning_in(const TensorSpec& tensor, int64_t begin, int64_t count) {
  const auto first_from = [&](int64_t element) {  // the first block that does not begin before the element
    if (element >= tensor.elements()) return tensor.blocks();
    const bool starts = element % tensor.block_row() % kStateBlock == 0;
    return tensor.block_of(element) + (starts ? 0 : 1);
  };
  const int64_t first = first_from(begin);
  return {first, first_from(begin + count) - first};
}

// Whether a state holds this tensor. With adapters it has only what is trained: the rest is in the base's own files.
bool is_held(const std::vector<LayerRecord>& records, const TensorSpec& tensor) {
  return tensor.trainable || !has_adapters(records);
}

std::map<std::string, Plane> masters_by_name(const std::vector<LayerRecord>& records) {
  std::map<std::string, Plane> planes;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (is_held(records, tensor)) planes[tensor.name] = {&record, &tensor, Plane::Kind::master};
    }
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

// The hash over bytes_of(piece), a vector, for all pieces. Pieces must be sorted by name_of(piece) and by position
// within a tensor. A team of threads produces their bytes in parallel; each of the hasher's two halves consumes them in
// order. Reports the progress of `what`.
template <class Piece, class NameOf, class BytesOf>
StateHash hash_pieces(const std::vector<Piece>& pieces, std::optional<int64_t> step, int threads,
                      const std::string& what, const NameOf& name_of, const BytesOf& bytes_of) {
  StateHasher hasher;
  InOrder together, each;
  WorkProgress progress(what, std::ssize(pieces));
  parallel_for(threads, std::ssize(pieces), [&](int64_t i) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    try {
      const auto values = bytes_of(piece);
      const size_t bytes = values.size() * sizeof(values[0]);
      together.pass(i, [&] { hasher.update_together(name_of(piece), values.data(), bytes); });
      each.pass(i, [&] { hasher.update_each(name_of(piece), values.data(), bytes); });
    } catch (...) {
      together.give_up();
      each.give_up();
      throw;
    }
    progress.add(1);
  });
  return hasher.finish(step);
}

template <class BytesOf>
StateHash hash_planes(const std::map<std::string, Plane>& planes, std::optional<int64_t> step, int threads,
                      const std::string& what, const BytesOf& bytes_of) {
  std::vector<PlanePiece> pieces;
  for (const auto& [name, plane] : planes) {
    for (int64_t at = 0; at < plane.tensor->elements(); at += kPiece)
      pieces.push_back({name, plane, at, std::min(kPiece, plane.tensor->elements() - at)});
  }
  return hash_pieces(
      pieces, step, threads, what, [](const PlanePiece& piece) { return piece.name; }, bytes_of);
}

}  // namespace

bool has_adapters(const std::vector<LayerRecord>& records) {
  return std::ranges::any_of(records, [](const LayerRecord& record) { return record.layout().is_adapter(); });
}

bool needs_base(const std::vector<LayerRecord>& records) {
  return has_adapters(records) || std::ranges::any_of(records, [](const LayerRecord& record) {
           return record.packed() && std::ranges::any_of(record.layout().tensors, [](const TensorSpec& tensor) {
                    return tensor.packing == WeightPacking::fp8;
                  });
         });
}

namespace {

struct Magnitudes {
  LayerRecord* adapters;
  const TensorSpec* tensor;
  const LayerRecord* base;
  const TensorSpec* weight;
};

// Those of all modules, with the weights that they belong to.
std::vector<Magnitudes> magnitudes_in(std::vector<LayerRecord>& records) {
  AdapterIndex index;
  std::map<const TensorSpec*, LayerRecord*> record_of;
  for (LayerRecord& record : records) {
    if (!record.layout().is_adapter()) continue;
    index.add(record.layout());
    for (const TensorSpec& tensor : record.layout().tensors) record_of[&tensor] = &record;
  }
  std::vector<Magnitudes> list;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      const TensorSpec* magnitude = tensor.is_adapter() ? nullptr : index.of(tensor).magnitude;
      if (magnitude) list.push_back({record_of.at(magnitude), magnitude, &record, &tensor});
    }
  }
  return list;
}

// Norms of rows, each summed in fp64 from first to last column.
std::vector<float> row_norms(const LayerRecord& record, const TensorSpec& weight) {
  const int64_t cols = weight.cols, at_once = std::max<int64_t>(1, kPiece / cols), element = dtype_bytes(weight.dtype);
  std::vector<float> norms;
  std::vector<std::byte> stored(static_cast<size_t>(std::min(at_once, weight.rows) * cols * element));
  const auto value = [&](int64_t i) {
    if (weight.dtype == DType::f32) return reinterpret_cast<const float*>(stored.data())[i];
    return to_float(reinterpret_cast<const bf16*>(stored.data())[i]);
  };
  for (int64_t row = 0; row < weight.rows; row += at_once) {
    const int64_t rows = std::min(at_once, weight.rows - row);
    record.read_weights((weight.offset + row * cols) * element, rows * cols * element, stored.data());
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t i = r * cols; i < (r + 1) * cols; ++i) squares += static_cast<double>(value(i)) * value(i);
      norms.push_back(static_cast<float>(std::sqrt(squares)));
    }
  }
  return norms;
}

// Trained rows of single tokens begin as those of their table.
void copy_token_rows(std::vector<LayerRecord>& records) {
  std::map<std::string, Plane> tables;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors)
      tables[tensor.name] = {&record, &tensor, Plane::Kind::master};
  }
  for (LayerRecord& record : records) {
    if (!record.layout().is_token_rows()) continue;
    for (const TensorSpec& rows : record.layout().tensors) {
      std::vector<float> row(static_cast<size_t>(rows.cols));
      for (int64_t i = 0; i < rows.rows; ++i) {
        tables.at(table_of(rows)).read(rows.ids[static_cast<size_t>(i)] * rows.cols, rows.cols, row.data());
        record.write_master(rows, i * rows.cols, rows.cols, row.data());
      }
    }
  }
}

}  // namespace

void init_magnitudes(std::vector<LayerRecord>& records, int threads) {
  const std::vector<Magnitudes> all = magnitudes_in(records);
  WorkProgress progress("measuring the rows of the weights", std::ssize(all));
  parallel_for(threads, std::ssize(all), [&](int64_t i) {
    const Magnitudes& each = all[static_cast<size_t>(i)];
    const std::vector<float> norms = row_norms(*each.base, *each.weight);
    each.adapters->write_master(*each.tensor, 0, std::ssize(norms), norms.data());
    progress.add(1);
  });
}

void init_adapters(const ModelConfig& config, uint64_t seed, std::vector<LayerRecord>& records, int threads) {
  for_pieces(records, threads, "drawing the adapters", [&](const TensorPiece& piece, float* scratch) {
    if (!piece.tensor->is_half()) return;
    init_tensor(config, *piece.tensor, seed, piece.begin, piece.count, scratch);
    piece.record->write_master(*piece.tensor, piece.begin, piece.count, scratch);
  });
  init_magnitudes(records, threads);
  copy_token_rows(records);
}

void init_fp8_scales(const ModelConfig& config, std::vector<LayerRecord>& records) {
  for (LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (!record.packed() || tensor.packing != WeightPacking::fp8) continue;
      const std::vector<float> scales(static_cast<size_t>(fp8_scales(tensor.rows, tensor.cols)),
                                      drawn_fp8_scale(config));
      record.write_packed(LayerRecord::Packed::scales, tensor, 0, 4 * std::ssize(scales), scales.data());
    }
  }
}

void init_weights(const ModelConfig& config, uint64_t seed, std::vector<LayerRecord>& records, int threads) {
  init_fp8_scales(config, records);
  for_pieces(records, threads, "drawing random weights", [&](const TensorPiece& piece, float* scratch) {
    init_tensor(config, *piece.tensor, seed, piece.begin, piece.count, scratch);
    piece.record->write_master(*piece.tensor, piece.begin, piece.count, scratch);
  });
  init_magnitudes(records, threads);
}

namespace {

// Bytes of a file's tensor: made of a record's, or `kept`.
struct ExportPiece {
  std::string name;
  FilePiece piece;
  const KeptTensors::Tensor* kept;
  int64_t begin, bytes;  // of `kept`
};

void add_kept(const KeptTensors& kept, ExportRequest& request,
              std::map<std::string, std::vector<ExportPiece>>& by_name) {
  constexpr int64_t kMost = 4 * kPiece;
  for (const KeptTensors::Tensor& tensor : kept.tensors()) {
    const int64_t bytes = tensor.declaration.bytes();
    std::vector<ExportPiece>& cut = by_name[tensor.declaration.name];
    request.tensors.push_back(tensor.declaration);
    for (int64_t at = 0; at == 0 || at < bytes; at += kMost)
      cut.push_back({tensor.declaration.name, {}, &tensor, at, std::min(kMost, bytes - at)});
  }
}

}  // namespace

StateHash export_tensors(ExportRequest request, const std::vector<const TensorSpec*>& specs,
                         const std::function<std::string(const std::string&)>& name,
                         const std::function<DType(const TensorSpec&)>& type, const ExportReady& ready,
                         const std::vector<LayerRecord>& records, int threads, const KeptTensors* kept) {
  std::map<std::string, const LayerRecord*> record_of;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) record_of[tensor.name] = &record;
  }
  const std::vector<FileTensor> tensors = file_tensors(specs);
  const auto type_of = [&](const FileTensor& tensor) { return type(*tensor.parts.front()); };
  std::map<std::string, std::vector<ExportPiece>> by_name;
  for (const FileTensor& tensor : tensors) {
    request.tensors.push_back({name(tensor.name), type_of(tensor), tensor.shape});
    const std::string& called = request.tensors.back().name;
    for (const FilePiece& piece : cut_file_tensor(tensor)) by_name[called].push_back({called, piece, nullptr, 0, 0});
  }
  if (kept) add_kept(*kept, request, by_name);
  std::vector<ExportPiece> pieces;
  for (const auto& [name, cut] : by_name) pieces.insert(pieces.end(), cut.begin(), cut.end());
  ModelExport out(std::move(request));
  const PartReader read = [&](const TensorSpec& part, int64_t begin, int64_t count, float* values) {
    record_of.at(part.name)->read_master(part, begin, count, values);
  };
  const StateHash hash = hash_pieces(
      pieces, {}, piece_team(tensors, threads), "writing the model",
      [](const ExportPiece& piece) { return piece.name; },
      [&](const ExportPiece& each) {
        if (each.kept) {
          const std::byte* data = each.kept->data + each.begin;
          std::vector<std::byte> bytes(data, data + each.bytes);
          out.write(each.name, each.begin, bytes.data(), each.bytes);
          release_pages({.name = {}, .shape = {}, .data = data, .bytes = each.bytes});
          return bytes;
        }
        const FilePiece& piece = each.piece;
        const DType stored = type_of(*piece.tensor);
        std::vector<std::byte> bytes = piece_bytes(piece, stored, read);
        out.write(each.name, piece.begin * dtype_bytes(stored), bytes.data(), std::ssize(bytes));
        return bytes;
      });
  if (kept) kept->check_whole();
  if (ready) ready(hash);
  out.finish();
  return hash;
}

StateHash export_model(const std::string& directory, const ExportTexts& texts, const TensorTypes& types,
                       const std::vector<LayerRecord>& records, int threads) {
  std::deque<TensorSpec> tensors;
  std::vector<const TensorSpec*> specs;
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors)
      specs.push_back(&tensors.emplace_back(in_form_of(types.at(tensor.name).in_other_form, tensor)));
  }
  ExportRequest request{
      .directory = directory, .config_json = texts.config_json, .source_directory = texts.source_directory};
  return export_tensors(
      std::move(request), specs,
      [&](const std::string& name) { return texts.kept ? texts.kept->name_in_files(name) : name; },
      [&](const TensorSpec& t) { return types.at(t.name); }, texts.ready, records, threads, texts.kept);
}

std::vector<TensorDeclaration> stored_tensors(const std::vector<LayerRecord>& records) {
  std::vector<TensorDeclaration> tensors;
  for (const auto& [name, plane] : planes_by_name(records)) {
    tensors.push_back({name, plane.stored_type(), tensor_shape(*plane.tensor)});
    if (plane.coded()) tensors.push_back({name + kScaleSuffix, DType::f32, scale_shape(*plane.tensor)});
  }
  return tensors;
}

StateHash save_state(const std::string& path, int64_t step, const std::vector<LayerRecord>& records, StateForm form,
                     int threads) {
  const std::map<std::string, Plane> planes = planes_by_name(records);
  std::vector<TensorDeclaration> tensors;
  std::map<std::string, std::string> about = {{"format", "pt"}, {"step", std::to_string(step)}};
  if (form == StateForm::stored) {
    tensors = stored_tensors(records);
    const LayerLayout& layout = records.front().layout();
    if (layout.moments != MomentFormat::fp32 || layout.master() != DType::f32)
      about[kStoredMoments] = moments_name(layout.moments);
  } else {
    for (const auto& [name, plane] : planes) tensors.push_back({name, DType::f32, tensor_shape(*plane.tensor)});
  }
  SafetensorsWriter out(path, std::move(tensors), about);
  const StateHash hash = hash_planes(planes, step, threads, "saving the state", [&](const PlanePiece& piece) {
    std::vector<float> values = piece.read();
    const Plane& plane = piece.plane;
    if (form == StateForm::fp32 || !plane.coded()) {
      out.write_f32(piece.name, piece.begin, values.data(), piece.count);  // exact: bf16 holds these values
      return values;
    }
    std::vector<uint8_t> codes(static_cast<size_t>(piece.count));
    plane.record->read_codes(plane.moment(), *plane.tensor, piece.begin, piece.count, codes.data());
    out.write(piece.name, piece.begin, codes.data(), piece.count);
    const BlockRange blocks = blocks_beginning_in(*plane.tensor, piece.begin, piece.count);
    std::vector<float> scales(static_cast<size_t>(blocks.count));
    plane.record->read_scales(plane.moment(), *plane.tensor, blocks.begin, blocks.count, scales.data());
    out.write_f32(piece.name + kScaleSuffix, blocks.begin, scales.data(), blocks.count);
    return values;
  });
  out.finish();
  return hash;
}

void load_state(const std::string& path, std::vector<LayerRecord>& records, int threads) {
  const ModelFiles file(path);
  const bool adapters = has_adapters(records);
  for_pieces(records, threads, "reading the checkpoint", [&](const TensorPiece& piece, float* scratch) {
    const TensorSpec& tensor = *piece.tensor;
    if (adapters && !tensor.trainable) return;
    const auto read = [&](const std::string& name, const std::vector<int64_t>& shape, int64_t begin, int64_t count) {
      const StoredTensor& stored = file.parameter(name, shape);
      read_as_f32(stored, begin, count, scratch);
      release_pages(stored, begin, count);
      const int64_t at = first_not_finite(scratch, count);
      if (at >= 0)
        fail_input(fmt::format("{}: element {} of {} is {}; a state must be finite", path, begin + at, name,
                               number_text(scratch[at])));
      return scratch;
    };
    const std::vector<int64_t> shape = tensor_shape(tensor);
    const float* master = read(tensor.name, shape, piece.begin, piece.count);
    if (!piece.record->holds(tensor, piece.begin, piece.count, master))
      fail_config(
          fmt::format("{} holds values of the frozen tensor {} that {} cannot hold, but model.path has it in {}: it is "
                      "not the model that the run began with; give that one, or start a new run_dir",
                      path, tensor.name, source_name(tensor), source_name(tensor)));
    piece.record->write_master(tensor, piece.begin, piece.count, master);
    if (!tensor.trainable) return;
    for (const auto& [suffix, moment] :
         {std::pair{".exp_avg", LayerRecord::Moment::first}, std::pair{".exp_avg_sq", LayerRecord::Moment::second}}) {
      const std::string name = tensor.name + suffix;
      if (piece.record->layout().moments != MomentFormat::int8) {
        piece.record->write_moment(moment, tensor, piece.begin, piece.count,
                                   read(name, shape, piece.begin, piece.count));
        continue;
      }
      const StoredTensor* codes = file.find(name);
      if (!codes || codes->dtype != StoredType::u8 || codes->shape != shape)
        fail_input(fmt::format("{}: expected {} as 8-bit codes", path, name));
      piece.record->write_codes(moment, tensor, piece.begin, piece.count,
                                reinterpret_cast<const uint8_t*>(codes->data) + piece.begin);
      release_pages(*codes, piece.begin, piece.count);
      const BlockRange blocks = blocks_beginning_in(tensor, piece.begin, piece.count);
      piece.record->write_scales(moment, tensor, blocks.begin, blocks.count,
                                 read(name + kScaleSuffix, scale_shape(tensor), blocks.begin, blocks.count));
    }
  });
}

StateHash hash_state(const std::vector<LayerRecord>& records, int64_t step, int threads) {
  return hash_planes(planes_by_name(records), step, threads, "hashing the state",
                     [](const PlanePiece& piece) { return piece.read(); });
}

}  // namespace megatrain
