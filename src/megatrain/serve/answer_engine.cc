#include "megatrain/serve/answer_engine.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "megatrain/base/log.h"
#include "megatrain/serve/api_error.h"

namespace megatrain {

void AnswerEngine::check(const std::vector<Job>& jobs) {
  for (const Job& job : jobs) {
    const int64_t tokens = std::ssize(job.prompt.ids);
    if (tokens >= context() + (job.prompt.max_tokens == 0 ? 1 : 0)) {
      throw ApiError(
          400,
          fmt::format(
              "the prompt has {} tokens, but this server's context of {} tokens must hold the answer too; shorten it",
              tokens, context()),
          job.prompt.chat ? "messages" : "prompt", "context_length_exceeded");
    }
    generator_.batch().check({.prompt = job.prompt.ids});
  }
  const std::lock_guard lock(mutex_);
  if (waiting_.size() + jobs.size() > kMostWaiting)
    throw ApiError(503, fmt::format("{} answers are waiting already; try again later", waiting_.size()), "",
                   "overloaded");
}

std::vector<AnswerEngine::Number> AnswerEngine::submit(std::vector<Job> jobs, Clock::time_point deadline) {
  std::vector<Number> numbers;
  const std::lock_guard lock(mutex_);
  const Number request = numbers_ + 1;
  for (Job& job : jobs) {
    waiting_.push_back({.number = ++numbers_, .job = std::move(job), .request = request, .deadline = deadline});
    numbers.push_back(numbers_);
  }
  changed_.notify_one();
  return numbers;
}

void AnswerEngine::cancel(const std::vector<Number>& numbers) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(numbers.begin(), numbers.end());
  changed_.notify_one();
}

void AnswerEngine::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_one();
}

int64_t AnswerEngine::waiting() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(waiting_);
}

void AnswerEngine::wait_for_work(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return stopping_ || !waiting_.empty() || !cancelled_.empty() || !live_.empty(); });
}

void AnswerEngine::take_cancelled(std::vector<Waiting>& dropped) {
  if (cancelled_.empty()) return;
  const auto gone = std::stable_partition(waiting_.begin(), waiting_.end(),
                                          [&](const Waiting& waiting) { return !cancelled_.contains(waiting.number); });
  std::move(gone, waiting_.end(), std::back_inserter(dropped));
  waiting_.erase(gone, waiting_.end());
  for (auto live = live_.begin(); live != live_.end();) {
    if (cancelled_.contains(live->second.number)) {
      generator_.batch().drop(live->first);
      dropped.push_back({live->second.number, std::move(live->second.job)});
      live = live_.erase(live);
    } else {
      ++live;
    }
  }
  cancelled_.clear();
}

std::vector<AnswerEngine::Waiting> AnswerEngine::take_late() {
  std::vector<Waiting> late;
  const Clock::time_point now = Clock::now();
  const auto gone = std::stable_partition(waiting_.begin(), waiting_.end(),
                                          [&](const Waiting& waiting) { return waiting.deadline > now; });
  std::move(gone, waiting_.end(), std::back_inserter(late));
  waiting_.erase(gone, waiting_.end());
  return late;
}

// Waits for work, drops cancelled jobs and moves waiting ones to free places; false at the end.
bool AnswerEngine::admit() {
  std::vector<Waiting> starting, late;
  std::vector<Waiting> dropped;  // destroyed without the lock: what a job holds may call back
  {
    std::unique_lock lock(mutex_);
    wait_for_work(lock);
    if (stopping_) {
      std::move(waiting_.begin(), waiting_.end(), std::back_inserter(dropped));
      waiting_.clear();
      return false;
    }
    take_cancelled(dropped);
    late = take_late();
    for (int64_t free = sequences() - std::ssize(live_); free > 0 && !waiting_.empty(); --free) {
      starting.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      // once a request has begun, its other answers wait as long as they have to
      for (auto next = waiting_.begin(); next != waiting_.end() && next->request == starting.back().request; ++next)
        next->deadline = Clock::time_point::max();
    }
  }
  for (const Waiting& waiting : late)
    waiting.job.on_error(
        ApiError(503, "no place became free for this request in time; try again later", "", "queue_timeout"));
  for (Waiting& waiting : starting) start(std::move(waiting));
  running_ = std::ssize(live_);
  return true;
}

void AnswerEngine::start(Waiting waiting) {
  Job& job = waiting.job;
  if (job.on_start) job.on_start();
  GenerationRequest request{.prompt = job.prompt.ids,
                            .max_tokens = job.prompt.max_tokens,
                            .sampling = job.sampling,
                            .sequence = job.sequence,
                            .reuse = true,
                            .adapter = job.adapter,
                            .scoring = job.scoring,
                            .constraint = std::move(job.constraint)};
  if (!generator_.batch().has_work(request)) return job.on_answer({});
  const DecodeBatch::Ticket ticket =
      generator_.batch().add(std::move(request), job.prompt.chat ? job.text->chat_end_ids : job.text->end_ids);
  reused_tokens_ = generator_.batch().reused_tokens();
  AnswerText text(job.text->tokenizer, job.stops, !job.keep_special_tokens);
  live_.emplace(ticket, Live{.number = waiting.number, .job = std::move(waiting.job), .text = std::move(text)});
}

// Tokens that begin behind the cut of a stop string are not part of the answer.
void AnswerEngine::send(Live& live, const std::string& text) {
  if (live.text.stopped()) {
    size_t begin = 0, kept = 0;
    for (; kept < live.scores.size() && begin < text.size(); ++kept)
      begin += live.job.text->tokenizer.bytes_of(live.scores[kept].token.id).size();
    live.scores.resize(kept);
  }
  if (!text.empty() || !live.scores.empty())
    live.job.on_piece({.text = text, .tokens = std::exchange(live.scores, {})});
}

void AnswerEngine::take(const DecodeBatch::Token& token) {
  const auto found = live_.find(token.ticket);
  Live& live = found->second;
  if (token.failed) {
    const Job job = std::move(live.job);
    live_.erase(found);
    try {
      std::rethrow_exception(token.failed);
    } catch (const Error& error) {
      log_warn(error.what());
      job.on_error(error);
    } catch (const std::exception& error) {
      log_warn(error.what());
      job.on_error(Error(ExitCode::internal, error.what()));
    }
    return;
  }
  if (live.job.scoring.prompt && live.ids.empty()) live.job.on_prompt(token.prompt);
  if (token.id >= 0) {
    ++tokens_;
    live.ids.push_back(token.id);
    if (token.likelihood && (!token.is_end || live.job.score_end)) live.scores.push_back(*token.likelihood);
    if (!token.is_end) {
      const std::string more = live.text.add(token.id);
      if (!more.empty()) send(live, more);
    }
    if (live.text.stopped()) generator_.batch().drop(token.ticket);
  }
  if (token.last || live.text.stopped()) end(found, token.is_end || token.complete ? Finish::stop : Finish::length);
}

void AnswerEngine::end(std::map<DecodeBatch::Ticket, Live>::iterator found, Finish finish) {
  const std::string more = found->second.text.finish();
  Live live = std::move(found->second);
  live_.erase(found);
  running_ = std::ssize(live_);
  send(live, more);
  live.job.on_answer(
      {.text = live.text.text(), .ids = std::move(live.ids), .finish = live.text.stopped() ? Finish::stop : finish});
}

void AnswerEngine::fail_all(const std::string& message) {
  log_warn(message);
  generator_.batch().clear();
  const std::map<DecodeBatch::Ticket, Live> failed = std::exchange(live_, {});
  for (const auto& [ticket, live] : failed) live.job.on_error(Error(ExitCode::internal, message));
}

void AnswerEngine::run() {
  while (admit()) {
    try {
      for (const DecodeBatch::Token& token : generator_.batch().step()) take(token);
    } catch (const std::exception& error) {
      fail_all(error.what());
    }
  }
  generator_.batch().clear();
  live_.clear();
  running_ = 0;
}

}  // namespace megatrain
