#include "device_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace chakrascope::converter {

// An event of a device trace, parsed in place. The types of arguments differ between traces, so
// arguments are converted when used.
struct DeviceReader::Event {
    Token ph, cat, name, pid, tid, ts, dur;
    bool usable = true;
    Token record_id, sequence, external_id, correlation, stream, device, size_bytes, kernel;
    Token collective, in_elements, out_elements, dtype, group_size, group_name, group_ranks, peer_to,
        peer_from;
    Token sync_kind, on_stream, record_correlation;
    Token shapes, types, values;

    Token* argument(std::string_view key);
    Token* field(std::string_view key);
};

namespace {

constexpr double kMaxMicroseconds = 4503599627370496.0;  // 2^52

enum class Category { Other, Operator, Annotation, Frame, Call, Kernel, Copy, Memset, Sync };

struct CategoryName {
    std::string_view name;
    Category category;
};

// The event categories of all accelerators that PyTorch supports in its traces.
constexpr CategoryName kCategories[] = {
    {"cpu_op", Category::Operator},
    {"user_annotation", Category::Annotation},
    {"python_function", Category::Frame},
    {"cuda_runtime", Category::Call},
    {"cuda_driver", Category::Call},
    {"hip_runtime", Category::Call},
    {"hip_driver", Category::Call},
    {"xpu_runtime", Category::Call},
    {"xpu_driver", Category::Call},
    {"privateuse1_runtime", Category::Call},
    {"privateuse1_driver", Category::Call},
    {"mtia_runtime", Category::Call},
    {"kernel", Category::Kernel},
    {"gpu_memcpy", Category::Copy},
    {"gpu_memset", Category::Memset},
    {"cuda_sync", Category::Sync},
    // Category names used by PyTorch before 1.11.
    {"Operator", Category::Operator},
    {"Runtime", Category::Call},
    {"Kernel", Category::Kernel},
    {"Memcpy", Category::Copy},
    {"Memset", Category::Memset},
};
constexpr std::string_view kParameters = "record_param_comms";
// The category of events that no graph needs, which are skipped.
constexpr std::string_view kTrace = "Trace";
// Calls of modules are always kept. Calls of other functions are kept if they take at least
// kLeastFrameNs.
constexpr std::string_view kModuleFrame = "nn.Module: ";
constexpr std::int64_t kLeastFrameNs = 20'000;
constexpr std::size_t kMaxUnread = 50;
constexpr std::size_t kMostShown = 80;  // characters of a name or number in a message

Category category_of(std::string_view name) {
    for (const auto& known : kCategories) {
        if (known.name == name) return known.category;
    }
    return Category::Other;
}

// Convert decimal microseconds below 2^52 to nanoseconds, rounded half to even. A double is not precise
// enough: for Unix times, its error is up to 250 ns.
std::int64_t decimal_ns(std::string_view raw) {
    const bool negative = raw.front() == '-';
    const std::size_t point = raw.find('.');
    std::int64_t ns = 0;
    std::from_chars(raw.data() + negative, raw.data() + point, ns);
    for (std::size_t i = point + 1; i <= point + 3; ++i) ns = ns * 10 + (i < raw.size() ? raw[i] - '0' : 0);
    const std::string_view rest = raw.substr(std::min(raw.size(), point + 4));
    if (!rest.empty() && rest.front() >= '5') {
        const bool is_half = rest.front() == '5' && rest.find_first_not_of('0', 1) == std::string_view::npos;
        ns += is_half ? ns % 2 : 1;
    }
    return negative ? -ns : ns;
}

// Convert microseconds to nanoseconds, rounded half to even as in Python. Returns false if the token is
// not a number or is too large.
bool to_ns(const Token& token, double least, std::int64_t& ns) {
    std::int64_t whole = 0;
    if (token.is_true_integer(whole)) {
        const auto microseconds = static_cast<double>(whole);
        if (microseconds < least || microseconds >= kMaxMicroseconds) return false;
        ns = whole * 1000;
        return true;
    }
    double microseconds = 0;
    if (token.kind == Kind::Absent) {
        ns = 0;
        return true;
    }
    if (token.kind != Kind::Number) return false;
    const char* const end = token.raw.data() + token.raw.size();
    if (std::from_chars(token.raw.data(), end, microseconds).ec != std::errc{}) return false;
    if (!(microseconds >= least && microseconds < kMaxMicroseconds)) return false;
    const bool is_plain = token.raw.find_first_of("eE") == std::string_view::npos;
    ns = is_plain ? decimal_ns(token.raw) : static_cast<std::int64_t>(std::nearbyint(microseconds * 1000));
    return true;
}

}  // namespace

Token* DeviceReader::Event::field(std::string_view key) {
    if (key == "ph") return &ph;
    if (key == "cat") return &cat;
    if (key == "name") return &name;
    if (key == "pid") return &pid;
    if (key == "tid") return &tid;
    if (key == "ts") return &ts;
    if (key == "dur") return &dur;
    return nullptr;
}

Token* DeviceReader::Event::argument(std::string_view key) {
    static constexpr struct {
        std::string_view name;
        Token Event::*token;
    } kKnown[] = {
        {"External id", &Event::external_id},
        {"Record function id", &Event::record_id},
        {"Sequence number", &Event::sequence},
        {"correlation", &Event::correlation},
        {"stream", &Event::stream},
        {"device", &Event::device},
        {"bytes", &Event::size_bytes},
        {"kernel", &Event::kernel},
        {"Collective name", &Event::collective},
        {"In msg nelems", &Event::in_elements},
        {"Out msg nelems", &Event::out_elements},
        {"dtype", &Event::dtype},
        {"Group size", &Event::group_size},
        {"Process Group Name", &Event::group_name},
        {"Process Group Ranks", &Event::group_ranks},
        {"Dst Rank", &Event::peer_to},
        {"Src Rank", &Event::peer_from},
        {"cuda_sync_kind", &Event::sync_kind},
        {"wait_on_stream", &Event::on_stream},
        {"wait_on_cuda_event_record_corr_id", &Event::record_correlation},
        {"Input Dims", &Event::shapes},
        {"Input type", &Event::types},
        {"Concrete Inputs", &Event::values},
    };
    for (const auto& one : kKnown) {
        if (one.name == key) return &(this->*one.token);
    }
    return nullptr;
}

void DeviceReader::element(Scanner& scanner) {
    if (scanner.peek() != '{') {
        scanner.value();
        return;
    }
    Event event;
    scanner.object([&](const Token& key) {
        if (key.raw == "args") {
            if (scanner.peek() != '{') {
                scanner.value();
                event.usable = false;
                return;
            }
            scanner.object([&](const Token& name) {
                const Token value = scanner.value();
                if (Token* const wanted = event.argument(name.raw)) *wanted = value;
            });
            return;
        }
        const Token value = scanner.value();
        if (Token* const wanted = event.field(key.raw)) *wanted = value;
    });
    // Only events that a graph needs are checked. All other events may have any form.
    if (event.usable && event.ph.kind == Kind::String && event.ph.raw == "X" &&
        event.cat.kind == Kind::String)
        keep(event);
}

void DeviceReader::member(std::string_view key, const Token& value) {
    if (key != "baseTimeNanoseconds" && key != "distributedInfo" && key != "deviceProperties") return;
    const bool is_text = value.kind == Kind::String;
    about.insert_or_assign(std::string(key),
                           is_text ? '"' + std::string(value.raw) + '"' : std::string(value.raw));
}

void DeviceReader::keep(const Event& event) {
    const Category category = category_of(event.cat.raw);
    if (category == Category::Other) {
        if (event.cat.raw == kTrace) return;
        const auto known = unread.find(event.cat.raw);
        if (known != unread.end()) {
            ++known->second;
        } else if (unread.size() < kMaxUnread) {
            unread.emplace(event.cat.raw, 1);
        }
        return;
    }
    if (category == Category::Frame) return keep_frame(event);
    if (category == Category::Sync) {
        syncs.kind.push_back(text_of(event.sync_kind));
        syncs.stream.push_back(event.stream.integer(-1));
        syncs.on_stream.push_back(event.on_stream.integer(-1));
        syncs.correlation.push_back(event.correlation.integer(-1));
        syncs.record_correlation.push_back(event.record_correlation.integer(-1));
        return;
    }
    std::int64_t start = 0, length = 0;
    const bool is_work =
        category == Category::Kernel || category == Category::Copy || category == Category::Memset;
    if (event.ts.kind == Kind::Absent || !to_ns(event.ts, -kMaxMicroseconds, start) ||
        !to_ns(event.dur, 0, length) || (is_work && start == 0 && length == 0)) {
        return skip_mistimed(event);
    }
    const std::int32_t name = text_of(event.name);
    switch (category) {
        case Category::Operator:
            if (process < 0) process = event.pid.integer(-1);
            if (event.pid.kind != Kind::Absent) processes.number(event.pid.text(scratch_));
            [[fallthrough]];
        case Category::Annotation:
            events.name.push_back(name);
            events.thread.push_back(text_of(event.tid));
            events.comm.push_back(event.name.raw == kParameters ? comm_of(event) : -1);
            events.arguments.push_back(arguments_of(event));
            events.is_operator.push_back(category == Category::Operator);
            events.start_ns.push_back(start);
            events.end_ns.push_back(start + length);
            events.record_id.push_back(event.record_id.integer(0));
            events.sequence.push_back(event.sequence.integer(-1));
            events.external_id.push_back(event.external_id.integer(0));
            return;
        case Category::Call:
            calls.name.push_back(name);
            calls.thread.push_back(text_of(event.tid));
            calls.kernel.push_back(text_of(event.kernel));
            calls.start_ns.push_back(start);
            calls.end_ns.push_back(start + length);
            calls.correlation.push_back(event.correlation.integer(-1));
            calls.external_id.push_back(event.external_id.integer(0));
            return;
        default:
            works.name.push_back(name);
            works.comm.push_back(comm_of(event));
            works.category.push_back(category == Category::Kernel ? 0 : category == Category::Copy ? 1 : 2);
            works.start_ns.push_back(start);
            works.end_ns.push_back(start + length);
            // If the arguments have no device or stream, the process and the thread of the event
            // identify them, as for XPUs.
            works.device.push_back(event.device.integer(event.pid.integer(0)));
            works.stream.push_back(event.stream.integer(event.tid.integer(-1)));
            works.correlation.push_back(event.correlation.integer(-1));
            works.external_id.push_back(event.external_id.integer(0));
            works.size_bytes.push_back(event.size_bytes.integer(-1));
    }
}

// Count an event with an invalid time: not a number, out of range or negative. Device work that the
// profiler could not time has start 0 and duration 0.
void DeviceReader::skip_mistimed(const Event& event) {
    if (mistimed++ != 0) return;
    const auto shown = [](const Token& token) {
        return token.kind == Kind::Absent ? std::string("none")
                                          : std::string(token.raw.substr(0, kMostShown));
    };
    first_mistimed.push_back('\'');
    first_mistimed.append(event.name.text(scratch_).substr(0, kMostShown));
    first_mistimed.append("' (ts ").append(shown(event.ts));
    first_mistimed.append(", dur ").append(shown(event.dur)).append(")");
}

void DeviceReader::keep_frame(const Event& event) {
    std::int64_t start = 0, length = 0;
    if (!to_ns(event.ts, -kMaxMicroseconds, start) || !to_ns(event.dur, 0, length)) return;
    if (length < kLeastFrameNs && !event.name.raw.starts_with(kModuleFrame)) return;
    frames.name.push_back(text_of(event.name));
    frames.thread.push_back(text_of(event.tid));
    frames.start_ns.push_back(start);
    frames.end_ns.push_back(start + length);
}

// Store the communication arguments of *event*, and return their row; -1 if the event has no such
// arguments.
std::int32_t DeviceReader::comm_of(const Event& event) {
    if (event.collective.kind == Kind::Absent || event.collective.kind == Kind::Null) return -1;
    comms.collective.push_back(text_of(event.collective));
    comms.in_elements.push_back(event.in_elements.integer(-1));
    comms.out_elements.push_back(event.out_elements.integer(-1));
    comms.dtype.push_back(text_of(event.dtype));
    comms.group_size.push_back(event.group_size.integer(0));
    comms.group_name.push_back(text_of(event.group_name));
    comms.group_ranks.push_back(text_of(event.group_ranks));
    const std::int64_t peer_to = event.peer_to.integer(-1);
    comms.peer.push_back(peer_to >= 0 ? peer_to : event.peer_from.integer(-1));
    return static_cast<std::int32_t>(comms.collective.size()) - 1;
}

// Store the arguments of an operator call, if requested and recorded, and return the number of their
// text.
std::int32_t DeviceReader::arguments_of(const Event& event) {
    if (!with_arguments_ || event.types.kind != Kind::Array || event.types.raw == "[]") return -1;
    scratch_ = '[';
    for (const Token* part : {&event.shapes, &event.types, &event.values}) {
        if (part != &event.shapes) scratch_.push_back(',');
        scratch_.append(part->kind == Kind::Array ? part->raw : "[]");
    }
    scratch_.push_back(']');
    return arguments.number(scratch_);
}

}  // namespace chakrascope::converter
