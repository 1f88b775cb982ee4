#include "document.h"

namespace chakrascope::converter {

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
        // A part that is longer than all pieces so far is not parsed again after each new piece.
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
