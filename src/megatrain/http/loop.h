// The implementation of HttpServer and HttpReply: libevent's loop and requests. Included only inside this room.
#pragma once

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/http/connections.h"
#include "megatrain/http/error_body.h"
#include "megatrain/http/server.h"

namespace megatrain {

// Frees objects that libevent allocated.
template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* thing) const {
    Free(thing);
  }
};
using EventBasePointer = std::unique_ptr<event_base, Freed<event_base_free>>;
using EventHttpPointer = std::unique_ptr<evhttp, Freed<evhttp_free>>;
using EventPointer = std::unique_ptr<event, Freed<event_free>>;
using BufferPointer = std::unique_ptr<evbuffer, Freed<evbuffer_free>>;

// State shared by the server's thread and the replies. It outlives the server as long as a reply exists.
struct HttpServer::Loop {
  // Destroyed from last to first: events before the base that they belong to.
  EventBasePointer base;
  EventHttpPointer http;
  EventPointer wake;
  std::deque<std::function<void()>> timed;  // called by timers, which hold their addresses
  std::vector<EventPointer> timers;
  std::exception_ptr thrown;  // by one of the calls

  HttpOptions options;
  Connections connections{options};
  evconnlistener* listener = nullptr;  // owned by http
  bool full = false;                   // the listener is paused until a place is free
  sockaddr_storage address{};
  std::map<std::string, std::map<std::string, Handler>> paths;  // by path, then by method
  std::set<HttpReply::State*> open;                             // only used on the server's thread
  const volatile std::sig_atomic_t* stop_wish = nullptr;

  std::mutex mutex;
  bool closed = false;                       // posts are dropped
  std::vector<std::function<void()>> posts;  // to be called on the server's thread

  // False if the server has closed.
  bool post(std::function<void()> call) {
    const std::lock_guard lock(mutex);
    if (closed) return false;
    posts.push_back(std::move(call));
    event_active(wake.get(), EV_READ, 0);
    return true;
  }
  void run_posts() {
    std::vector<std::function<void()>> calls;
    {
      const std::lock_guard lock(mutex);
      calls.swap(posts);
    }
    for (const auto& call : calls) call();
  }
  void add_timer(double seconds, std::function<void()> call);
  void answer(const std::shared_ptr<Loop>& self, evhttp_request* request);
  void handle(const HttpRequest& request, const HttpReply& reply, const evkeyvalq* headers);
  void keep_room();
  void send_heartbeats();
  void close();
};

// Everything except `is_gone` is used only on the server's thread.
struct HttpReply::State {
  std::shared_ptr<HttpServer::Loop> loop;
  evhttp_request* request = nullptr;  // null: answered, or the client has gone
  EventPointer watch;                 // fires when the client closes
  Connection* connection = nullptr;   // the request's
  bool events = false;
  std::atomic<bool> is_gone{false};
  std::function<void()> on_gone;

  // Called when the last copy of the reply is destroyed: an unanswered request gets an answer.
  static void release(State* state) {
    const bool posted = state->loop->post([state] {
      state->end();
      state->send(500, "application/json", http_error_body(500, "the request was not answered"));
      delete state;
    });
    if (!posted) delete state;  // after the server has closed, it holds nothing of libevent's
  }

  void begin(evhttp_request* from) {
    request = from;
    loop->open.insert(this);
    evhttp_connection* from_client = evhttp_request_get_connection(request);
    evhttp_connection_set_closecb(
        from_client, [](evhttp_connection*, void* self) { static_cast<State*>(self)->connection_failed(); }, this);
    bufferevent* stream = evhttp_connection_get_bufferevent(from_client);
    connection = &loop->connections.of(stream);
    connection->begin_work();
    const evutil_socket_t socket = bufferevent_getfd(stream);
    const int one = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // events are small
    watch.reset(event_new(
        loop->base.get(), socket, EV_CLOSED,
        [](evutil_socket_t, short, void* self) { static_cast<State*>(self)->drop(); }, this));
    event_add(watch.get(), nullptr);
  }

  // Detaches the request from this reply. Its connection is libevent's again, or closed.
  evhttp_request* take() {
    watch.reset();
    connection->end_work();
    loop->open.erase(this);
    return std::exchange(request, nullptr);
  }
  evhttp_request* take_answered() {
    evhttp_connection* from_client = evhttp_request_get_connection(request);
    evhttp_connection_set_closecb(from_client, nullptr, nullptr);
    if (events) evhttp_connection_set_timeout(from_client, loop->options.timeout_s);
    on_gone = nullptr;
    return take();
  }

  void tell_gone() {
    is_gone = true;
    if (const auto call = std::exchange(on_gone, nullptr)) call();
  }
  // libevent gave up the connection and left the request to us.
  void connection_failed() {
    if (!request) return;
    evhttp_request_free(take());
    tell_gone();
  }
  // The client has gone, or is not worth waiting for.
  void drop() {
    if (!request) return;
    evhttp_connection* from_client = evhttp_request_get_connection(take());
    evhttp_connection_set_closecb(from_client, nullptr, nullptr);
    evhttp_connection_free(from_client);
    tell_gone();
  }

  bool is_head() const { return evhttp_request_get_command(request) == EVHTTP_REQ_HEAD; }
  void add_header(const char* name, const char* value) {
    evhttp_add_header(evhttp_request_get_output_headers(request), name, value);
  }
  void add_headers(const HttpHeaders& headers) {
    for (const auto& [name, value] : headers) add_header(name.c_str(), value.c_str());
  }
  void send(int status, const std::string& type, const std::string& body, const HttpHeaders& headers = {}) {
    if (!request || events) return;
    add_headers(headers);
    add_header("Content-Type", type.c_str());
    add_header("X-Content-Type-Options", "nosniff");
    add_header("Cache-Control", "no-store");
    if (status == 503) add_header("Retry-After", "1");  // there was too much at once
    const BufferPointer buffer(evbuffer_new());
    if (is_head()) {  // libevent would send the body
      add_header("Content-Length", std::to_string(body.size()).c_str());
    } else {
      evbuffer_add(buffer.get(), body.data(), body.size());
    }
    evhttp_send_reply(take_answered(), status, nullptr, buffer.get());
  }
  void begin_events(const HttpHeaders& headers) {
    if (!request || events) return;
    events = true;
    add_headers(headers);
    add_header("Content-Type", "text/event-stream; charset=utf-8");
    add_header("Cache-Control", "no-store");
    if (is_head()) {
      evhttp_send_reply(take_answered(), 200, nullptr, nullptr);
      return tell_gone();  // the answer is complete
    }
    evhttp_send_reply_start(request, 200, nullptr);
    // Removes the read timeout: libevent would wait for bytes from a client that has nothing more to say.
    const timeval most{.tv_sec = loop->options.timeout_s, .tv_usec = 0};
    bufferevent_set_timeouts(evhttp_connection_get_bufferevent(evhttp_request_get_connection(request)), nullptr, &most);
  }
  void write(const std::string& text) {
    if (!request || !events) return;
    bufferevent* stream = evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));
    if (static_cast<int64_t>(evbuffer_get_length(bufferevent_get_output(stream))) > loop->options.max_unread_bytes)
      return drop();
    const BufferPointer buffer(evbuffer_new());
    evbuffer_add(buffer.get(), text.data(), text.size());
    evhttp_send_reply_chunk(request, buffer.get());
  }
  void end() {
    if (request && events) evhttp_send_reply_end(take_answered());
  }
};

}  // namespace megatrain
