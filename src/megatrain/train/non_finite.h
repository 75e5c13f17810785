// Error reports for non-finite numbers: which layer, which tensor, which samples.
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

// "the embedding", "layer 17" (counted from 0, as in tensor names), "layer 17 (its experts)", "the head".
std::string record_name(const Workload& workload, int64_t record);

// The first non-finite value of a record: "the second moment of model.layers.17.mlp.up_proj.weight, at element 5".
// Empty if all are finite. The lanes must be idle.
std::string not_finite_in(const LayerRecord& record);

// The highest layer whose gradient is not finite, where backward went wrong first: "layer 17". Judged by the sums of
// squares of the records' parts. Empty if all are finite.
std::string first_bad_gradient(const Workload& workload, std::span<const double> squares);

// A document of a step, given by its first token.
struct DocumentAt {
  int64_t micro_batch = 0;
  int64_t token = 0;
};

// The documents of a batch with a non-finite loss; `losses` has one value per token of the batch.
std::vector<DocumentAt> documents_not_finite(const Batch& batch, const std::vector<float>& losses);

// A non-finite loss, with the documents it comes from.
class NonFiniteLoss : public Error {
 public:
  NonFiniteLoss(const std::string& message, std::vector<DocumentAt> documents)
      : Error(ExitCode::non_finite, message), documents_(std::move(documents)) {}
  const std::vector<DocumentAt>& documents() const { return documents_; }

 private:
  std::vector<DocumentAt> documents_;
};

// Calls work(). Turns a NonFiniteLoss into an Error that also names the places in the source from which the documents
// of step `step` (from 0) come.
template <class Work>
auto naming_documents(BatchSource& source, int64_t step, const Work& work);

// ". The loss is not finite in data.jsonl:17, data.jsonl:99 and 3 more"; empty if there are none.
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
