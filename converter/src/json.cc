#include "json.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

namespace chakrascope::converter {
namespace {

constexpr std::size_t kLongestTextNumber = 19;
constexpr double kMostExact = 9007199254740992;  // 2^53: a double holds every smaller integer

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

// Load eight bytes, with the first byte in the lowest bits.
std::uint64_t load(const char* at) {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

constexpr std::uint64_t kOnes = 0x0101010101010101;
constexpr std::uint64_t kHighs = 0x8080808080808080;

// Set the high bit of each zero byte of *word*. Bytes above a zero byte may also be marked.
constexpr std::uint64_t zero_bytes(std::uint64_t word) { return (word - kOnes) & ~word & kHighs; }

// Mark the bytes of *word* that end the plain part of a string: quotes, backslashes, and the zero after
// the last byte. Marks are exact up to the first marked byte.
constexpr std::uint64_t interrupting(std::uint64_t word) {
    return zero_bytes(word ^ (kOnes * '"')) | zero_bytes(word ^ (kOnes * '\\')) | zero_bytes(word);
}

// Return the number of bytes before the first byte with a bit set in *marks*.
int bytes_before(std::uint64_t marks) { return std::countr_zero(marks) / 8; }

int hex_value(char digit) {
    if (is_digit(digit)) return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

unsigned four_hex_digits(const char* at) {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i) code = code << 4 | static_cast<unsigned>(hex_value(at[i]));
    return code;
}

void append_utf8(unsigned code, std::string& out) {
    const auto byte = [&](unsigned value) { out.push_back(static_cast<char>(value)); };
    if (code < 0x80) {
        byte(code);
    } else if (code < 0x800) {
        byte(0xC0 | code >> 6);
        byte(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        byte(0xE0 | code >> 12);
        byte(0x80 | (code >> 6 & 0x3F));
        byte(0x80 | (code & 0x3F));
    } else {
        byte(0xF0 | code >> 18);
        byte(0x80 | (code >> 12 & 0x3F));
        byte(0x80 | (code >> 6 & 0x3F));
        byte(0x80 | (code & 0x3F));
    }
}

bool is_high_surrogate(unsigned code) { return code >= 0xD800 && code < 0xDC00; }
bool is_low_surrogate(unsigned code) { return code >= 0xDC00 && code < 0xE000; }

}  // namespace

std::string printable(std::string_view raw) {
    std::string shown(raw);
    for (char& byte : shown)
        if (byte < ' ' || byte > '~') byte = '?';
    return shown;
}

void unescape(std::string_view raw, std::string& out) {
    for (std::size_t i = 0; i < raw.size(); ++i) {
        if (raw[i] != '\\') {
            out.push_back(raw[i]);
            continue;
        }
        switch (raw[++i]) {
            case 'b':
                out.push_back('\b');
                break;
            case 'f':
                out.push_back('\f');
                break;
            case 'n':
                out.push_back('\n');
                break;
            case 'r':
                out.push_back('\r');
                break;
            case 't':
                out.push_back('\t');
                break;
            case 'u': {
                unsigned code = four_hex_digits(raw.data() + i + 1);
                i += 4;
                if (is_high_surrogate(code)) {
                    code = 0x10000 + ((code - 0xD800) << 10) + (four_hex_digits(raw.data() + i + 3) - 0xDC00);
                    i += 6;
                }
                append_utf8(code, out);
                break;
            }
            default:
                out.push_back(raw[i]);
        }
    }
}

std::int64_t Token::integer(std::int64_t other) const {
    std::int64_t value = 0;
    if (is_true_integer(value)) return value;
    if (kind == Kind::Number) {
        double number = 0;
        std::from_chars(raw.data(), raw.data() + raw.size(), number);
        const bool is_whole = std::abs(number) <= kMostExact && number == std::trunc(number);
        return is_whole ? static_cast<std::int64_t>(number) : other;
    }
    if (kind != Kind::String || escaped || raw.size() > kLongestTextNumber) return other;
    const auto [end, error] = std::from_chars(raw.data(), raw.data() + raw.size(), value);
    return error == std::errc{} && end == raw.data() + raw.size() ? value : other;
}

bool Token::is_true_integer(std::int64_t& value) const {
    if (kind != Kind::Integer) return false;
    return std::from_chars(raw.data(), raw.data() + raw.size(), value).ec == std::errc{};
}

std::string_view Token::text(std::string& scratch) const {
    switch (kind) {
        case Kind::Null:
            return "None";
        case Kind::True:
            return "True";
        case Kind::False:
            return "False";
        default:
            if (!escaped) return raw;
    }
    scratch.clear();
    unescape(raw, scratch);
    return scratch;
}

void Scanner::fail(const char* what) const { throw FormatError(what); }

void Scanner::ended() const {
    if (more_) throw NeedMore{};
    fail("it breaks off in the middle");
}

char Scanner::skip() {
    while (true) {
        const char byte = *at_;
        if (byte == ' ') {
            // Fast path for the long runs of spaces in indented JSON files.
            ++at_;
            while (end_ - at_ >= 8) {
                const std::uint64_t others = load(at_) ^ (kOnes * ' ');
                if (others != 0) {
                    at_ += bytes_before(others);
                    break;
                }
                at_ += 8;
            }
        } else if (byte == '\n' || byte == '\r' || byte == '\t') {
            ++at_;
        } else if (byte != '\0') {
            return byte;
        } else if (at_ != end_) {
            fail("a NUL byte");
        } else if (more_) {
            throw NeedMore{};
        } else {
            return '\0';
        }
    }
}

bool Scanner::exhausted() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
    return at_ == end_;
}

void Scanner::missing(char expected) const {
    if (at_ == end_) ended();
    const char what[] = {'\'', expected, '\'', ' ', 'i', 's', ' ', 'e',
                         'x',  'p',      'e',  'c', 't', 'e', 'd', '\0'};
    fail(what);
}

Token Scanner::key() {
    if (peek() != '"') {
        if (at_ == end_) ended();
        fail("the name of a member is expected");
    }
    const Token found = string();
    take(':');
    return found;
}

Token Scanner::value() {
    switch (peek()) {
        case '"':
            return string();
        case '{':
        case '[':
            return nested();
        case 't':
            return literal("true", Kind::True);
        case 'f':
            return literal("false", Kind::False);
        case 'n':
            return literal("null", Kind::Null);
        case 'N':
            return literal("NaN", Kind::Null);
        case 'I':
            return literal("Infinity", Kind::Null);
        case '-':
            if (at_ + 1 < end_ && at_[1] == 'I') return literal("-Infinity", Kind::Null);
            return number();
        case '\0':
            ended();
        default:
            return number();
    }
}

// Read a string. A string may contain control characters and bytes that are not UTF-8, which PyTorch
// 2.4 wrote in names of Python functions.
Token Scanner::string() {
    const char* const start = ++at_;
    bool escaped = false;
    while (true) {
        while (end_ - at_ >= 8) {
            const std::uint64_t marks = interrupting(load(at_));
            if (marks != 0) {
                at_ += bytes_before(marks);
                break;
            }
            at_ += 8;
        }
        if (*at_ == '"') {
            const Token found{Kind::String, escaped, {start, static_cast<std::size_t>(at_ - start)}};
            ++at_;
            return found;
        }
        if (*at_ == '\\') {
            escaped = true;
            escape();
        } else if (at_ == end_) {
            ended();
        } else {
            ++at_;
        }
    }
}

// Read an escape sequence, or the two escape sequences of a surrogate pair.
void Scanner::escape() {
    if (end_ - at_ < 2) ended();
    const char kind = at_[1];
    if (kind == '\0' || std::strchr("\"\\/bfnrtu", kind) == nullptr) fail("an unknown escape in a text");
    if (kind != 'u') {
        at_ += 2;
        return;
    }
    const auto check = [&](const char* start) {
        for (int i = 2; i < 6; ++i) {
            if (start + i >= end_) ended();
            if (hex_value(start[i]) < 0) fail("a damaged escape in a text");
        }
        return four_hex_digits(start + 2);
    };
    const unsigned code = check(at_);
    at_ += 6;
    if (is_low_surrogate(code)) fail("half a surrogate pair in a text");
    if (!is_high_surrogate(code)) return;
    if (end_ - at_ < 6 && more_) ended();
    if (end_ - at_ < 6 || at_[0] != '\\' || at_[1] != 'u' || !is_low_surrogate(check(at_)))
        fail("half a surrogate pair in a text");
    at_ += 6;
}

Token Scanner::literal(std::string_view word, Kind kind) {
    for (std::size_t i = 0; i < word.size(); ++i) {
        if (at_ + i >= end_) ended();
        if (at_[i] != word[i]) fail("an unknown word");
    }
    const Token found{kind, false, {at_, word.size()}};
    at_ += word.size();
    return found;
}

void Scanner::digits() {
    if (!is_digit(*at_)) {
        if (at_ == end_) ended();
        fail("a damaged number");
    }
    while (is_digit(*at_)) ++at_;
}

Token Scanner::number() {
    const char* const start = at_;
    bool whole = true;
    if (*at_ == '-') ++at_;
    if (*at_ == '0')
        ++at_;
    else if (is_digit(*at_) || at_ == end_)
        digits();
    else
        fail("a value is expected");
    if (is_digit(*at_)) fail("a damaged number");
    if (*at_ == '.') {
        whole = false;
        ++at_;
        digits();
    }
    if (*at_ == 'e' || *at_ == 'E') {
        whole = false;
        ++at_;
        if (*at_ == '+' || *at_ == '-') ++at_;
        digits();
    }
    if (at_ == end_ && more_) ended();  // more digits may follow
    const Kind kind = whole ? Kind::Integer : Kind::Number;
    return {kind, false, {start, static_cast<std::size_t>(at_ - start)}};
}

// Skip an object or an array without parsing its content.
Token Scanner::nested() {
    const char* const start = at_;
    const Kind kind = *at_ == '{' ? Kind::Object : Kind::Array;
    std::string closing;  // closing brackets of the open objects and arrays
    do {
        const char next = peek();
        if (next == '{' || next == '[') {
            ++at_;
            if (closing.size() == kDeepest) fail("values are nested too deep");
            closing.push_back(next == '{' ? '}' : ']');
            if (!try_take(closing.back())) {
                if (next == '{') key();
                continue;
            }
            closing.pop_back();
        } else {
            value();
        }
        while (!closing.empty() && try_take(closing.back())) closing.pop_back();
        if (closing.empty()) break;
        take(',');
        if (closing.back() == '}') key();
    } while (true);
    return {kind, false, {start, static_cast<std::size_t>(at_ - start)}};
}

void Document::feed(std::string_view bytes) {
    pending_.append(bytes);
    if (pending_.size() >= worth_more_) parse(true);
}

void Document::finish() {
    parse(false);
    if (state_ != State::Done) throw FormatError("it breaks off in the middle");
    if (!found_) throw FormatError("it has no '" + std::string(array_) + "'");
}

void Document::parse(bool more) {
    const char* const begin = pending_.data();
    Scanner scanner(begin, begin + pending_.size(), more);
    const char* whole = begin;
    worth_more_ = 0;
    try {
        while (!(scanner.exhausted() && (more || state_ == State::Done))) {
            step(scanner);
            whole = scanner.position();
        }
        whole = scanner.position();
    } catch (const NeedMore&) {
        // A long incomplete part is parsed again only after the pending bytes have doubled, not after
        // each new piece.
        worth_more_ = 2 * static_cast<std::size_t>(begin + pending_.size() - whole);
    } catch (const FormatError& error) {
        const auto place = passed_ + static_cast<std::size_t>(scanner.position() - begin);
        throw FormatError(std::string(error.what()) + ", byte " + std::to_string(place));
    }
    passed_ += static_cast<std::size_t>(whole - begin);
    pending_.erase(0, static_cast<std::size_t>(whole - begin));
}

void Document::step(Scanner& scanner) {
    switch (state_) {
        case State::Start:
            scanner.take('{');
            state_ = State::FirstMember;
            return;
        case State::FirstMember:
        case State::Member:
            member(scanner);
            return;
        case State::FirstElement:
        case State::Element:
            element(scanner);
            return;
        case State::Done:
            scanner.fail("something follows its end");
    }
}

void Document::member(Scanner& scanner) {
    if (scanner.try_take('}')) {
        state_ = State::Done;
        return;
    }
    if (state_ == State::Member) scanner.take(',');
    const Token key = scanner.key();
    if (key.raw == array_) {
        scanner.take('[');
        found_ = true;
        state_ = State::FirstElement;
        return;
    }
    parts_.member(key.raw, scanner.value());
    state_ = State::Member;
}

void Document::element(Scanner& scanner) {
    if (scanner.try_take(']')) {
        state_ = State::Member;
        return;
    }
    if (state_ == State::Element) scanner.take(',');
    parts_.element(scanner);
    state_ = State::Element;
}

}  // namespace chakrascope::converter
