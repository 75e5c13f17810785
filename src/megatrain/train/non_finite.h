// What to say when numbers stop being finite: in which layer, which tensor, which samples.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/data/batch.h"
#include "megatrain/plan/workload.h"
#include "megatrain/store/record.h"

namespace megatrain {

// "the embedding", "layer 17" (counted from 0, as the tensors' names do), "layer 17 (its experts)", "the head".
std::string record_name(const Workload& workload, int64_t record);

// What of a record is infinite or NaN: "the second moment of model.layers.17.mlp.up_proj.weight, at element 5"; empty
// when all of it is finite. The lanes must be idle.
std::string not_finite_in(const LayerRecord& record);

// Where a gradient stopped being finite on its way down from the head, by the sums of squares of the records' parts:
// "layer 17"; empty when all are finite.
std::string first_bad_gradient(const Workload& workload, std::span<const double> squares);

// A document of a step, by its first token.
struct DocumentAt {
  int64_t micro_batch = 0;
  int64_t token = 0;
};

// The documents of a batch with a loss that is infinite or NaN; `losses` are those of all its tokens.
std::vector<DocumentAt> documents_not_finite(const Batch& batch, const std::vector<float>& losses);

// A loss that is infinite or NaN, and the documents it comes from.
class NonFiniteLoss : public Error {
 public:
  NonFiniteLoss(const std::string& message, std::vector<DocumentAt> documents)
      : Error(ExitCode::non_finite, message), documents_(std::move(documents)) {}
  const std::vector<DocumentAt>& documents() const { return documents_; }

 private:
  std::vector<DocumentAt> documents_;
};

// Calls work(); a NonFiniteLoss becomes an Error that also names where in the source step `step` (from 0) has these
// documents from.
template <class Work>
auto naming_documents(BatchSource& source, int64_t step, const Work& work);

// ". The loss is not finite in data.jsonl:17, data.jsonl:99 and 3 more"; empty when there are none.
std::string name_documents(BatchSource& source, int64_t step, const std::vector<DocumentAt>& documents);

template <class Work>
auto naming_documents(BatchSource& source, int64_t step, const Work& work) {
  try {
    return work();
  } catch (const NonFiniteLoss& error) {
    fail(error.code(), error.what() + name_documents(source, step, error.documents()));
  }
}

}  // namespace megatrain
