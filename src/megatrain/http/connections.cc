#include "megatrain/http/connections.h"

#include <event2/event.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "megatrain/http/error_body.h"

namespace megatrain {

namespace {

double seconds_between(Connection::Clock::time_point from, Connection::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Connection::Connection(bufferevent* stream, const HttpOptions& options)
    : stream_(stream), scanner_(options.max_header_bytes) {
  bufferevent_incref(stream_);
  bufferevent_setcb(
      stream_, nullptr, nullptr, [](bufferevent*, short, void*) {}, nullptr);  // until libevent sets its own
  evbuffer_add_cb(bufferevent_get_input(stream_), take, this);
}

Connection::~Connection() {
  evbuffer_remove_cb(bufferevent_get_input(stream_), take, this);
  bufferevent_decref(stream_);
}

// Called when bytes are added to the input, before libevent reads them.
void Connection::take(evbuffer* input, const evbuffer_cb_info* info, void* self) {
  auto& connection = *static_cast<Connection*>(self);
  if (connection.is_over()) bufferevent_disable(connection.stream_, EV_READ);  // drop what still arrives
  if (connection.cutting_ || info->n_added == 0) return;
  connection.scan(input, info->n_added);
  if (connection.in_work_ || connection.scanner_.refused()) return;
  if (connection.bytes_ == 0 && !connection.is_new_) connection.since_ = Clock::now();
  connection.bytes_ += static_cast<int64_t>(info->n_added);
}

// Requests before a refused one stay in the input. The refused one and everything after it are removed.
void Connection::scan(evbuffer* input, size_t added) {
  const size_t before = evbuffer_get_length(input) - added;
  added_ += static_cast<int64_t>(added);
  if (scanner_.refused()) return cut(input, before);
  if (scanner_.take_body(static_cast<int64_t>(added))) return;  // locating them would take as long as the body so far
  evbuffer_ptr at;
  evbuffer_ptr_set(input, &at, before, EVBUFFER_PTR_SET);
  std::vector<evbuffer_iovec> parts(static_cast<size_t>(evbuffer_peek(input, -1, &at, nullptr, 0)));
  evbuffer_peek(input, -1, &at, parts.data(), static_cast<int>(parts.size()));
  for (const evbuffer_iovec& part : parts) {
    if (scanner_.take({static_cast<const char*>(part.iov_base), part.iov_len})) continue;
    const int64_t read_by_libevent = added_ - static_cast<int64_t>(evbuffer_get_length(input));
    cut(input, static_cast<size_t>(std::max<int64_t>(scanner_.request_begin() - read_by_libevent, 0)));
    return answer_refusal();
  }
}

void Connection::cut(evbuffer* input, size_t keep) {
  std::string kept(keep, '\0');
  cutting_ = true;
  evbuffer_remove(input, kept.data(), keep);
  evbuffer_drain(input, evbuffer_get_length(input));
  evbuffer_prepend(input, kept.data(), keep);
  cutting_ = false;
}

void Connection::answer_refusal() {
  if (!scanner_.refused() || refusal_answered_ || !waits() || evbuffer_get_length(bufferevent_get_input(stream_)) > 0)
    return;
  const std::string body = http_error_body(scanner_.status(), scanner_.message());
  const std::string reply = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
      scanner_.status() == 431 ? "431 Request Header Fields Too Large" : "400 Bad Request", body.size(), body);
  const evutil_socket_t socket = bufferevent_getfd(stream_);
  // Bypasses libevent, which answers only complete requests. A socket with nothing unsent has space for this much.
  [[maybe_unused]] const ssize_t sent = ::send(socket, reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket, SHUT_WR);
  refusal_answered_ = true;
  since_ = Clock::now();
}

void Connection::end_work() {
  in_work_ = is_new_ = false;
  bytes_ = 0;
  since_ = Clock::now();
}

bool Connection::is_over() const {
  bufferevent_event_cb on_event = nullptr;  // libevent removes it when it frees the stream
  bufferevent_getcb(stream_, nullptr, nullptr, &on_event, nullptr);
  return !on_event;
}

bool Connection::waits() const {
  return !in_work_ && is_open() && evbuffer_get_length(bufferevent_get_output(stream_)) == 0;
}

bool Connection::is_late(const HttpOptions& options, Clock::time_point now) const {
  constexpr double kLinger_s = 2;
  if (refusal_answered_ && is_open()) return seconds_between(since_, now) > kLinger_s;
  if (!waits() || (bytes_ == 0 && !is_new_)) return false;
  const double more_s = static_cast<double>(bytes_) / static_cast<double>(options.least_bytes_per_s);
  return seconds_between(since_, now) > options.request_s + more_s;
}

void Connection::close() {
  closing_ = true;
  ::shutdown(bufferevent_getfd(stream_), SHUT_RDWR);
}

bufferevent* Connections::add(event_base* base) {
  if (!have_place()) {
    if (Connection* longest = longest_waiting()) longest->close();
  }
  bufferevent* stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
  if (stream) open_.try_emplace(stream, stream, options_);
  return stream;
}

void Connections::look() {
  const Connection::Clock::time_point now = Connection::Clock::now();
  std::erase_if(open_, [](const auto& entry) { return entry.second.is_over(); });
  for (auto& [stream, connection] : open_) {
    connection.answer_refusal();
    if (connection.is_late(options_, now)) connection.close();
  }
  bound_memory();
}

void Connections::bound_memory() {
  for (;;) {
    int64_t sum = 0;
    Connection* largest = nullptr;
    for (auto& [stream, connection] : open_) {
      sum += connection.partial_bytes();
      if (!largest || connection.partial_bytes() > largest->partial_bytes()) largest = &connection;
    }
    if (sum <= options_.max_partial_bytes) return;
    largest->close();
  }
}

bool Connections::have_place() const {
  return std::count_if(open_.begin(), open_.end(), [](const auto& entry) { return entry.second.is_open(); }) <
         options_.max_connections;
}

bool Connections::have_room() { return have_place() || longest_waiting(); }

Connection* Connections::longest_waiting() {
  const Connection::Clock::time_point now = Connection::Clock::now();
  Connection* longest = nullptr;
  for (auto& [stream, connection] : open_) {
    if (!connection.waits() || seconds_between(connection.since(), now) < options_.least_wait_s) continue;
    if (!longest || connection.since() < longest->since()) longest = &connection;
  }
  return longest;
}

}  // namespace megatrain
