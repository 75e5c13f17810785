#include "megatrain/run/merge_adapter.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "megatrain/base/bf16.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/number_text.h"
#include "megatrain/base/units.h"
#include "megatrain/base/work_progress.h"
#include "megatrain/config/adapter_file.h"
#include "megatrain/host/parallel.h"
#include "megatrain/io/new_output.h"
#include "megatrain/model/model.h"
#include "megatrain/model/token_rows.h"
#include "megatrain/run/export_source.h"
#include "megatrain/run/run_files.h"
#include "megatrain/train/adapter_files.h"
#include "megatrain/train/setup.h"

namespace megatrain {

namespace {

// What an adapter's directory adds to the tensors of its base, or has in their place.
class Additions {
 public:
  Additions(const std::string& directory, const AdapterFile& file, const ModelConfig& model)
      : rules_(adapter_rules(file.settings, true)),
        layouts_(model_layouts(model, DType::f32, {.adapter = rules_})),
        values_(read_adapter(directory, rules_, layouts_)) {
    for (const LayerLayout& layout : layouts_) tensors_.add(layout);
  }

  // With DoRA, what each row of the sums is multiplied by. `base` reads the base's weights.
  void find_factors(const std::vector<const TensorSpec*>& weights, const PartReader& base, int threads) {
    std::vector<std::pair<const TensorSpec*, std::vector<float>*>> wanted;
    for (const TensorSpec* weight : weights) {
      if (tensors_.of(*weight).magnitude) wanted.emplace_back(weight, &factors_[weight->name]);
    }
    WorkProgress progress("measuring the rows of the weights", std::ssize(wanted));
    parallel_for(threads, std::ssize(wanted), [&](int64_t i) {
      const auto& [weight, factors] = wanted[static_cast<size_t>(i)];
      *factors = factors_of(*weight, base);
      progress.add(1);
    });
  }

  // Puts trained rows of single tokens over those of their table.
  void replace_rows(const TensorSpec& tensor, int64_t begin, int64_t count, float* out) const {
    for (const LayerLayout& layout : layouts_) {
      if (!layout.is_token_rows()) continue;
      for (const TensorSpec& rows : layout.tensors) {
        if (table_of(rows) == tensor.name) replace_rows_of(rows, begin, count, out);
      }
    }
  }

  bool adds_to(const TensorSpec& tensor) const { return tensors_.of(tensor).a != nullptr; }
  bool replaces(const TensorSpec& tensor) const { return values_.contains(tensor.name); }

  void read(const TensorSpec& tensor, int64_t begin, int64_t count, float* out) const {
    const std::vector<float>& values = values_.at(tensor.name);
    std::copy_n(values.begin() + begin, count, out);
  }

  void add(const TensorSpec& tensor, int64_t begin, int64_t count, float* out) const {
    add_halves(tensor, begin, count, out);
    if (const auto factors = factors_.find(tensor.name); factors != factors_.end()) {
      for (int64_t i = 0; i < count; ++i) out[i] *= factors->second[static_cast<size_t>((begin + i) / tensor.cols)];
    }
  }

 private:
  void add_halves(const TensorSpec& tensor, int64_t begin, int64_t count, float* out) const {
    const AdapterPair pair = tensors_.of(tensor);
    const TensorSpec& second = *pair.b;
    const std::vector<float>& b = values_.at(second.name);
    const std::vector<float>& a = values_.at(pair.a->name);
    const int64_t rank = second.cols, cols = tensor.cols;
    for (int64_t i = 0; i < count;) {
      const int64_t row = (begin + i) / cols, col = (begin + i) % cols, run = std::min(count - i, cols - col);
      std::vector<float> sums(static_cast<size_t>(run));
      for (int64_t r = 0; r < rank; ++r) {
        const float factor = b[static_cast<size_t>((pair.first_row + row) * rank + r)];
        const float* of_a = a.data() + r * cols + col;
        for (int64_t j = 0; j < run; ++j) sums[static_cast<size_t>(j)] += factor * of_a[j];
      }
      for (int64_t j = 0; j < run; ++j) out[i + j] += second.adapter.scale * sums[static_cast<size_t>(j)];
      i += run;
    }
  }

  std::vector<float> factors_of(const TensorSpec& weight, const PartReader& base) const {
    std::vector<float> factors = values_.at(tensors_.of(weight).magnitude->name);
    std::vector<float> row(static_cast<size_t>(weight.cols));
    for (int64_t r = 0; r < weight.rows; ++r) {
      base(weight, r * weight.cols, weight.cols, row.data());
      add_halves(weight, r * weight.cols, weight.cols, row.data());
      double squares = 0;
      for (const float value : row) squares += static_cast<double>(value) * value;
      const float norm = static_cast<float>(std::sqrt(squares));
      factors[static_cast<size_t>(r)] = norm > 0 ? factors[static_cast<size_t>(r)] / norm : 0.0f;
    }
    return factors;
  }

  void replace_rows_of(const TensorSpec& rows, int64_t begin, int64_t count, float* out) const {
    const std::vector<float>& values = values_.at(rows.name);
    for (int64_t row = 0; row < rows.rows; ++row) {
      const int64_t in_table = rows.ids[static_cast<size_t>(row)] * rows.cols;
      const int64_t first = std::max(in_table, begin), last = std::min(in_table + rows.cols, begin + count);
      for (int64_t i = first; i < last; ++i)
        out[i - begin] = values[static_cast<size_t>(row * rows.cols + i - in_table)];
    }
  }

  AdapterRules rules_;
  std::vector<LayerLayout> layouts_;
  AdapterValues values_;
  AdapterIndex tensors_;
  std::map<std::string, std::vector<float>> factors_;  // by the weight's name
};

// A sum that the type of the merged weights cannot hold.
void check_holds(DType type, const TensorSpec& tensor, int64_t begin, int64_t count, const float* values) {
  constexpr float kMostF16 = 65504, kMostBf16 = 3.3895314e38f;
  const float most = type == DType::f16    ? kMostF16
                     : type == DType::bf16 ? kMostBf16
                                           : std::numeric_limits<float>::max();
  for (int64_t i = 0; i < count; ++i) {
    if (std::fabs(values[i]) <= most) continue;
    fail_input(fmt::format(
        "element {} of {} is {} with the adapter, which {} cannot hold; {}", begin + i, tensor.name,
        number_text(values[i]), dtype_name(type),
        type == DType::f16 ? "merge with --dtype bf16" : "the adapter comes from a training that diverged"));
  }
}

}  // namespace

MergedModel merge_adapter(const std::string& base, const std::string& adapter, const std::string& out,
                          std::optional<DType> type, int threads) {
  refuse_existing_output(out);
  const ExportSource source(base, true);
  verify_model_of_run(adapter);
  const AdapterFile file = read_adapter_file(adapter);
  warn_of_other_base(adapter, file, base);
  Additions additions(adapter, file, source.model);

  ExportRequest request{.directory = {}, .config_json = {}, .source_directory = source.tokenizer_directory};
  const std::vector<FileTensor> tensors = file_tensors(source.tensors());
  const auto type_of = [&](const FileTensor& tensor) {
    return type.value_or(source.stored_type(tensor.parts.front()->name));
  };
  const KeptTensors kept = source.kept();
  int64_t bytes = 0;
  for (const FileTensor& tensor : tensors) {
    request.tensors.push_back({kept.name_in_files(tensor.name), type_of(tensor), tensor.shape});
    bytes += request.tensors.back().bytes();
  }
  kept.declare(request.tensors);
  bytes += kept.bytes();
  request.config_json = source.config_for(type_of(tensors.front()), type);
  log_info(fmt::format("writing {} with {} merged into it to {}: {}", base, adapter, out, format_bytes(bytes)));

  NewOutput output(out);
  request.directory = output.path();
  ModelExport merged(std::move(request));
  std::atomic<int64_t> adapted = 0, still = 0;
  additions.find_factors(source.tensors(), source.reader(type.value_or(DType::bf16)), threads);
  const auto reader_for = [&](DType stored) {
    return [&, stored, of_base = source.reader(stored)](const TensorSpec& part, int64_t begin, int64_t count,
                                                        float* values) {
      if (additions.replaces(part)) return additions.read(part, begin, count, values);
      of_base(part, begin, count, values);
      additions.replace_rows(part, begin, count, values);
      if (!additions.adds_to(part)) return;
      const std::vector<float> before(values, values + count);
      additions.add(part, begin, count, values);
      check_holds(stored, part, begin, count, values);
      int64_t same = 0;
      for (int64_t i = 0; i < count; ++i) {
        const float was = before[static_cast<size_t>(i)];
        same += stored == DType::f32 ? values[i] == was : to_float(to_bf16(values[i])) == to_float(to_bf16(was));
      }
      adapted += count;
      still += same;
    };
  };
  std::vector<FilePiece> pieces;
  for (const FileTensor& tensor : tensors) {
    const std::vector<FilePiece> cut = cut_file_tensor(tensor);
    pieces.insert(pieces.end(), cut.begin(), cut.end());
  }
  WorkProgress progress("merging", std::ssize(pieces));
  parallel_for(piece_team(tensors, threads), std::ssize(pieces), [&](int64_t i) {
    const FilePiece& piece = pieces[static_cast<size_t>(i)];
    const DType stored = type_of(*piece.tensor);
    const std::vector<std::byte> data = piece_bytes(piece, stored, reader_for(stored));
    merged.write(kept.name_in_files(piece.tensor->name), piece.begin * dtype_bytes(stored), data.data(),
                 std::ssize(data));
    progress.add(1);
  });
  source.check_whole();
  kept.copy([&](const std::string& name, int64_t offset, const std::byte* data, int64_t bytes) {
    merged.write(name, offset, data, bytes);
  });
  MergedModel result{.files = merged.finish(), .adapted = adapted, .still = still};
  output.put_in_place();
  return result;
}

}  // namespace megatrain
