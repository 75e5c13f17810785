// Answers requests that arrive at any time. Each joins the running batch between two passes as soon as a place is free;
// a cancelled one leaves it between two passes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/generate/answer.h"
#include "megatrain/generate/answer_text.h"

namespace megatrain {

class AnswerEngine {
 public:
  static constexpr size_t kMostWaiting = 1024;

  // Outlives this, and nothing else uses it meanwhile.
  explicit AnswerEngine(Generator& generator) : generator_(generator) {}

  using Clock = std::chrono::steady_clock;

  // A piece of an answer: text that is certain by now, and the likelihoods of the tokens that it comes from. Either may
  // be empty.
  struct Piece {
    std::string text;
    std::vector<Likelihood> tokens;
  };

  // Callbacks run on the thread of run(), and none after the job is cancelled. A job ends with one call of on_answer or
  // on_error.
  struct Job {
    Prompt prompt;
    const ModelText* text = nullptr;  // of the model that answers; outlives the engine
    size_t adapter = 0;               // GenerationRequest::adapter
    Sampling sampling;
    uint64_t sequence = 0;  // chooses the random numbers
    std::vector<std::string> stops;
    Scoring scoring;
    bool score_end = false;            // the end token has a likelihood among the pieces, too
    bool keep_special_tokens = false;  // in the text
    std::shared_ptr<TokenConstraint> constraint;
    std::function<void()> on_start;                                 // when it leaves the queue
    std::function<void(std::vector<Likelihood> prompt)> on_prompt;  // Scoring::prompt: of its tokens but the first
    std::function<void(const Piece& piece)> on_piece;
    std::function<void(const Answer& answer)> on_answer;
    std::function<void(const Error& error)> on_error;
  };

  int64_t context() const { return generator_.forward().options().max_context; }
  int64_t sequences() const { return generator_.forward().options().max_batch; }
  int64_t vocabulary() const { return generator_.forward().model().vocab; }

  // From any thread. Throws ApiError(400) for a prompt that does not fit, and ApiError(503) if too many jobs wait.
  void check(const std::vector<Job>& jobs);
  // From any thread, for jobs that were checked. Returns a number for each. If none of the jobs has started at
  // `deadline`, they end with ApiError(503).
  using Number = uint64_t;
  std::vector<Number> submit(std::vector<Job> jobs, Clock::time_point deadline = Clock::time_point::max());
  void cancel(const std::vector<Number>& numbers);

  void run();  // until stop(); unfinished jobs are dropped
  void stop();

  int64_t tokens() const { return tokens_; }  // generated so far
  int64_t reused_tokens() const { return reused_tokens_; }
  int64_t running() const { return running_; }
  int64_t waiting() const;

 private:
  struct Waiting {
    Number number;
    Job job;
    Number request = 0;  // the number of the first job that was submitted with it
    Clock::time_point deadline = Clock::time_point::max();
  };
  struct Live {
    Number number;
    Job job;
    AnswerText text;
    std::vector<int32_t> ids = {};
    std::vector<Likelihood> scores = {};  // of tokens whose text is not certain yet
  };

  bool admit();
  void wait_for_work(std::unique_lock<std::mutex>& lock);
  void take_cancelled(std::vector<Waiting>& dropped);
  std::vector<Waiting> take_late();
  void start(Waiting waiting);
  void take(const DecodeBatch::Token& token);
  static void send(Live& live, const std::string& text);
  void end(std::map<DecodeBatch::Ticket, Live>::iterator live, Finish finish);
  void fail_all(const std::string& message);

  Generator& generator_;
  std::map<DecodeBatch::Ticket, Live> live_;  // only used on the thread of run()
  std::atomic<int64_t> tokens_{0}, reused_tokens_{0}, running_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  Number numbers_ = 0;
  std::deque<Waiting> waiting_;
  std::set<Number> cancelled_;
};

}  // namespace megatrain
