#include "megatrain/cli/typed_keys.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cwchar>
#include <iterator>
#include <utility>

namespace megatrain {

namespace {

constexpr char kCtrlD = '\x04', kEscape = '\x1b';
constexpr wchar_t kCtrlV = L'\x16', kDelete = L'\x7f', kLastControl = L'\x9f', kNoCharacter = L'\xFFFD';
// Key sequences, without the escape character in front.
constexpr std::string_view kPasteBegins = "[200~", kPasteEnds = "[201~";
constexpr std::pair<std::string_view, const char*> kWordKeys[] = {  // ctrl or alt with an arrow, and the editor's name
    {"[1;5C", "f"},
    {"[1;3C", "f"},
    {"[1;5D", "b"},
    {"[1;3D", "b"}};
constexpr std::string_view kEditorKeys[] = {"[A", "[B", "[C", "[D", "[H", "[F", "OA", "OB",
                                            // the editor would insert others as text
                                            "OC", "OD", "OH", "OF", "[1~", "[3~", "[4~"};
constexpr size_t kMostOfKey = 16;
// A terminal sends the bytes of a key at once; a person does not type that fast. A slow connection may delay the rest
// of a key, but nobody types "[" that soon after escape.
constexpr int kBeginOfKey_ms = 25, kRestOfKey_ms = 500, kRestOfPaste_ms = 2000;

volatile std::sig_atomic_t continued = 0;

void on_continue(int) { continued = 1; }

bool has_input(int wait_ms) {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN};
  return ::poll(&input, 1, wait_ms) > 0;
}

}  // namespace

TypedKeys::TypedKeys(const volatile std::sig_atomic_t* interrupted) : interrupted_(interrupted) {
  struct sigaction action {};
  action.sa_handler = on_continue;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGCONT, &action, &before_);
}

TypedKeys::~TypedKeys() { ::sigaction(SIGCONT, &before_, nullptr); }

bool TypedKeys::take_unread(char& byte) {
  if (unread_.empty()) return false;
  byte = unread_.front();
  unread_.erase(0, 1);
  return true;
}

TypedKeys::Got TypedKeys::read_byte(char& byte) {
  constexpr int kLookForSignal_ms = 50;
  for (;;) {
    if (*interrupted_ != 0) return Got::interrupt;
    if (continued != 0) {
      continued = 0;
      return Got::resumed;
    }
    if (take_unread(byte)) return Got::character;
    if (!has_input(kLookForSignal_ms)) continue;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count < 0) continue;
    if (count == 0) return Got::end;
    return Got::character;
  }
}

std::optional<char> TypedKeys::byte_within(int wait_ms) {
  char byte = 0;
  if (take_unread(byte)) return byte;
  if (!has_input(wait_ms) || ::read(STDIN_FILENO, &byte, 1) != 1) return std::nullopt;
  return byte;
}

void TypedKeys::take_typed_ahead() {
  termios modes{};
  if (::tcgetattr(STDIN_FILENO, &modes) == 0 && (modes.c_lflag & ISIG) != 0) {
    signal_keys_.clear();
    for (const auto& [key, signal] : {std::pair{VINTR, SIGINT}, {VSUSP, SIGTSTP}, {VQUIT, SIGQUIT}}) {
      if (modes.c_cc[key] != _POSIX_VDISABLE) signal_keys_.push_back({static_cast<char>(modes.c_cc[key]), signal});
    }
  }
  std::array<char, 4096> bytes;
  while (has_input(0)) {
    const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count > 0) unread_.append(bytes.data(), static_cast<size_t>(count));
    if (count == 0) unread_ += kCtrlD;
    if (count <= 0) return;
  }
}

// Reads the bytes of a key after an escape ("[1;5D"), as far as they have arrived.
std::string TypedKeys::rest_of_key() {
  std::string key;
  const auto wait_ms = [&] {
    // otherwise the end mark would be taken for text
    if (pasting_ && kPasteEnds.starts_with(key)) return kRestOfPaste_ms;
    return key.empty() ? kBeginOfKey_ms : kRestOfKey_ms;
  };
  for (std::optional<char> byte; key.size() < kMostOfKey && (byte = byte_within(wait_ms()));) {
    key += *byte;
    if (pasting_ && !kPasteEnds.starts_with(key)) break;
    const bool introduces = key == "[" || key == "O";
    const bool parameter = key.front() == '[' && *byte >= ' ' && *byte < '@';
    if (!introduces && !parameter) break;
  }
  return key;
}

// Handles the key after an escape. Returns true if the key is done with; otherwise its bytes are in unread_.
bool TypedKeys::obey_key() {
  const std::string key = rest_of_key();
  if (key == kPasteEnds || (key == kPasteBegins && !pasting_)) {
    pasting_ = key == kPasteBegins;
    after_return_ = false;
    if (!pasting_ && waiting_.ends_with(L'\r')) waiting_.pop_back();
    return true;
  }
  if (pasting_) {
    unread_.insert(0, key);
    return false;
  }
  const auto of_word =
      std::find_if(std::begin(kWordKeys), std::end(kWordKeys), [&](const auto& k) { return k.first == key; });
  if (of_word != std::end(kWordKeys)) {
    unread_.insert(0, of_word->second);
    return false;
  }
  const bool whole = key.size() > 1 && (key.front() == '[' || key.front() == 'O');
  if (whole && std::find(std::begin(kEditorKeys), std::end(kEditorKeys), key) == std::end(kEditorKeys)) return true;
  unread_.insert(0, key);
  return false;
}

// The signal that this key sends, if any.
std::optional<int> TypedKeys::signal_of(char byte) const {
  const auto found =
      std::find_if(signal_keys_.begin(), signal_keys_.end(), [byte](const SignalKey& key) { return key.byte == byte; });
  if (found == signal_keys_.end()) return std::nullopt;
  return found->signal;
}

void TypedKeys::paste(wchar_t character) {
  const bool ended = std::exchange(after_return_, character == L'\r');
  if (character == L'\r' || character == L'\n') {
    if (character == L'\r' || !ended) waiting_ += L'\r';
  } else if (character == L'\t') {
    waiting_ += {kCtrlV, character};
  } else if (character >= L' ' && (character < kDelete || character > kLastControl)) {
    waiting_ += character;
  }
}

TypedKeys::Got TypedKeys::give(bool pasted) {
  pasted_before_ = std::exchange(pasted_, pasted);
  return Got::character;
}

void TypedKeys::forget_paste() {
  waiting_.clear();
  given_ = 0;
}

TypedKeys::Got TypedKeys::next(wchar_t& character) {
  std::mbstate_t state{};
  for (;;) {
    if (pasting_ && unread_.empty() && *interrupted_ == 0 && !has_input(kRestOfPaste_ms)) pasting_ = false;
    if (!waiting_.empty() && !pasting_ && *interrupted_ == 0) {
      character = waiting_[given_++];
      if (given_ == waiting_.size()) forget_paste();
      return give(true);
    }
    char byte = 0;
    if (const Got got = read_byte(byte); got != Got::character) {
      if (got == Got::interrupt) {
        forget_paste();
        unread_.clear();
        pasting_ = false;
      }
      return got;
    }
    if (const std::optional<int> signal = pasting_ ? std::nullopt : signal_of(byte)) {
      if (*signal == SIGQUIT) return Got::quit;
      // As the terminal would: a stop goes to the whole job. The SIGINT of ctrl-C is delivered before this continues.
      *signal == SIGINT ? ::raise(SIGINT) : ::kill(0, *signal);
      continue;
    }
    if (byte == kEscape) {
      state = {};
      if (obey_key() || pasting_) continue;
      character = kEscape;
      return give(false);
    }
    const bool begun = std::mbsinit(&state) == 0;
    const size_t used = std::mbrtowc(&character, &byte, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;  // the character is incomplete
    if (used == static_cast<size_t>(-1)) {
      if (begun) unread_.insert(0, 1, byte);  // it begins the next character
      state = {};
      character = kNoCharacter;
    }
    if (!pasting_) return give(false);
    paste(character);
  }
}

}  // namespace megatrain
