// Device traces (Kineto JSON) as columns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"
#include "texts.h"

namespace chakrascope::converter {

// Operators and annotations of host threads. Times are nanoseconds from the trace's base; texts are
// indices, and so are *arguments* (-1: none).
struct EventColumns {
    std::vector<std::int32_t> name, thread, comm, arguments;
    std::vector<std::uint8_t> is_operator;
    std::vector<std::int64_t> start_ns, end_ns, record_id, sequence, external_id;
};

// Calls of Python functions and modules from the profiler (``with_stack``): all calls of modules,
// and other calls that are long enough to explain a stall of a host thread.
struct FrameColumns {
    std::vector<std::int32_t> name, thread;
    std::vector<std::int64_t> start_ns, end_ns;
};

// Calls of the accelerator's runtime; *kernel* is the kernel they launch, if the trace has it.
struct CallColumns {
    std::vector<std::int32_t> name, thread, kernel;
    std::vector<std::int64_t> start_ns, end_ns, correlation, external_id;
};

// Device activities; *category* is 0 for kernels, 1 for copies, 2 for memory sets.
struct WorkColumns {
    std::vector<std::int32_t> name, comm;
    std::vector<std::uint8_t> category;
    std::vector<std::int64_t> start_ns, end_ns, device, stream, correlation, external_id, size_bytes;
};

// Recorded synchronisations.
struct SyncColumns {
    std::vector<std::int32_t> kind;
    std::vector<std::int64_t> stream, on_stream, correlation, record_correlation;
};

// The communication arguments of events; the *comm* columns above are indices of its rows, -1 for
// none.
struct CommColumns {
    std::vector<std::int32_t> collective, dtype, group_name, group_ranks;
    std::vector<std::int64_t> in_elements, out_elements, group_size, peer;
};

class DeviceReader : private Parts {
  public:
    // With *with_arguments*, the recorded arguments of operator calls are stored.
    explicit DeviceReader(bool with_arguments = false)
        : document_("traceEvents", *this), with_arguments_(with_arguments) {}
    DeviceReader(const DeviceReader&) = delete;
    DeviceReader& operator=(const DeviceReader&) = delete;

    // Read the next bytes of the file. Raises FormatError.
    void feed(std::string_view bytes) { document_.feed(bytes); }
    // Finish at the end of the file. Raises FormatError.
    void finish() { document_.finish(); }

    EventColumns events;
    FrameColumns frames;
    CallColumns calls;
    WorkColumns works;
    SyncColumns syncs;
    CommColumns comms;
    Texts texts;
    // The arguments of operator calls: the JSON array [shapes, types, values].
    Texts arguments;
    // The top-level members that describe the trace, as JSON.
    std::map<std::string, std::string> about;
    // The process id of the operators, -1 if the trace does not contain it.
    std::int64_t process = -1;
    // The processes of the operators, as the trace spells them.
    Texts processes;
    // The number of events of each kind that is skipped.
    std::map<std::string, std::int64_t, std::less<>> unread;
    // The number of events that are skipped because their time is impossible, and the first one.
    std::int64_t mistimed = 0;
    std::string first_mistimed;

  private:
    struct Event;

    void element(Scanner& scanner) override;
    void member(std::string_view key, const Token& value) override;
    void keep(const Event& event);
    void keep_frame(const Event& event);
    void skip_mistimed(const Event& event);
    std::int32_t comm_of(const Event& event);
    std::int32_t arguments_of(const Event& event);
    std::int32_t text_of(const Token& token) { return texts.number(token.text(scratch_)); }

    Document document_;
    bool with_arguments_;
    std::string scratch_;
};

}  // namespace chakrascope::converter
