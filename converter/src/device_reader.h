// Reads device traces (Kineto JSON) into columns.
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

// Operators and annotations of host threads. Times are nanoseconds from the base time of the trace.
// Texts and *arguments* are indices of interned texts (-1: none).
struct EventColumns {
    std::vector<std::int32_t> name, thread, comm, arguments;
    std::vector<std::uint8_t> is_operator;
    std::vector<std::int64_t> start_ns, end_ns, record_id, sequence, external_id;
};

// Calls of Python functions and modules, recorded by the profiler (``with_stack``). The columns contain
// all calls of modules, and calls of functions that are long enough to explain a stall of a host
// thread.
struct FrameColumns {
    std::vector<std::int32_t> name, thread;
    std::vector<std::int64_t> start_ns, end_ns;
};

// Calls of the accelerator's runtime. *kernel* is the name of the launched kernel, if the trace
// contains the name.
struct CallColumns {
    std::vector<std::int32_t> name, thread, kernel;
    std::vector<std::int64_t> start_ns, end_ns, correlation, external_id;
};

// Activities of devices. *category* is 0 for kernels, 1 for copies, 2 for memory sets.
struct WorkColumns {
    std::vector<std::int32_t> name, comm;
    std::vector<std::uint8_t> category;
    std::vector<std::int64_t> start_ns, end_ns, device, stream, correlation, external_id, size_bytes;
};

// Synchronisations recorded in the trace.
struct SyncColumns {
    std::vector<std::int32_t> kind;
    std::vector<std::int64_t> stream, on_stream, correlation, record_correlation;
};

// The communication arguments of events. The *comm* columns of other tables are row indices of this
// table, -1 for none.
struct CommColumns {
    std::vector<std::int32_t> collective, dtype, group_name, group_ranks;
    std::vector<std::int64_t> in_elements, out_elements, group_size, peer;
};

class DeviceReader : private Parts {
  public:
    // Create a reader of device traces. With *with_arguments*, the reader also stores the recorded
    // arguments of operator calls.
    explicit DeviceReader(bool with_arguments = false)
        : document_("traceEvents", *this), with_arguments_(with_arguments) {}
    DeviceReader(const DeviceReader&) = delete;
    DeviceReader& operator=(const DeviceReader&) = delete;

    // Read the next bytes of the file. Raises FormatError.
    void feed(std::string_view bytes) { document_.feed(bytes); }
    // Finish reading at the end of the file. Raises FormatError if the file is incomplete.
    void finish() { document_.finish(); }

    EventColumns events;
    FrameColumns frames;
    CallColumns calls;
    WorkColumns works;
    SyncColumns syncs;
    CommColumns comms;
    Texts texts;
    // The arguments of operator calls, each as a JSON array [shapes, types, values].
    Texts arguments;
    // The top-level members that describe the trace, as JSON.
    std::map<std::string, std::string> about;
    // The process id of the operators, -1 if the trace does not contain an id.
    std::int64_t process = -1;
    // The processes of the operators, as written in the trace.
    Texts processes;
    // The number of skipped events of each kind.
    std::map<std::string, std::int64_t, std::less<>> unread;
    // The number of events skipped because of an invalid time, and a description of the first such
    // event.
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
