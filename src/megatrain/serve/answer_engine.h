// Answers requests that arrive at any time. Each joins the running batch between two passes as soon as a place is free;
// a cancelled one leaves it between two passes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "megatrain/generate/answer.h"
#include "megatrain/generate/answer_text.h"

namespace megatrain {

class AnswerEngine {
 public:
  static constexpr size_t kMostWaiting = 1024;

  // Outlives this, and nothing else uses it meanwhile.
  explicit AnswerEngine(Generator& generator) : generator_(generator) {}

  // Callbacks run on the thread of run(), and none after the job is cancelled. A job ends with one call of on_answer or
  // on_error.
  struct Job {
    Prompt prompt;
    const ModelText* text = nullptr;  // of the model that answers; outlives the engine
    size_t adapter = 0;               // GenerationRequest::adapter
    Sampling sampling;
    uint64_t sequence = 0;  // chooses the random numbers
    std::vector<std::string> stops;
    std::function<void(const std::string& text)> on_text;  // as it becomes certain, never empty
    std::function<void(const Answer& answer)> on_answer;
    std::function<void(const std::string& message)> on_error;
  };

  int64_t context() const { return generator_.forward().options().max_context; }
  int64_t sequences() const { return generator_.forward().options().max_batch; }
  int64_t vocabulary() const { return generator_.forward().model().vocab; }

  // From any thread. Throws ApiError(400) for a prompt that does not fit, and ApiError(503) if too many jobs wait.
  void check(const std::vector<Job>& jobs);
  // From any thread, for jobs that were checked. Returns a number for each.
  using Number = uint64_t;
  std::vector<Number> submit(std::vector<Job> jobs);
  void cancel(const std::vector<Number>& numbers);

  void run();  // until stop(); unfinished jobs are dropped
  void stop();

  int64_t tokens() const { return tokens_; }  // generated so far

 private:
  struct Waiting {
    Number number;
    Job job;
  };
  struct Live {
    Number number;
    Job job;
    AnswerText text;
    std::vector<int32_t> ids;
  };

  bool admit();
  void start(Waiting waiting);
  void take(const DecodeBatch::Token& token);
  void end(std::map<DecodeBatch::Ticket, Live>::iterator live, Finish finish);
  void fail_all(const std::string& message);

  Generator& generator_;
  std::map<DecodeBatch::Ticket, Live> live_;  // only used on the thread of run()
  std::atomic<int64_t> tokens_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  Number numbers_ = 0;
  std::deque<Waiting> waiting_;
  std::set<Number> cancelled_;
};

}  // namespace megatrain
