// Device traces (Kineto JSON) as columns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "document.h"
#include "texts.h"

namespace chakrascope::converter {

// Operators and annotations of host threads. Times are nanoseconds from the trace's base; texts are numbers,
// *arguments* those of the reader's arguments (-1: none).
struct EventColumns {
    std::vector<std::int32_t> name, thread, comm, arguments;
    std::vector<std::uint8_t> is_operator;
    std::vector<std::int64_t> start_ns, end_ns, record_id, sequence, external_id;
};

// Calls of Python functions and modules that the profiler saw (``with_stack``): those of a module, and those
// that take long enough to be where a host thread stalled.
struct FrameColumns {
    std::vector<std::int32_t> name, thread;
    std::vector<std::int64_t> start_ns, end_ns;
};

// Calls of the accelerator's runtime; *kernel* is what they launch, where the trace says so.
struct CallColumns {
    std::vector<std::int32_t> name, thread, kernel;
    std::vector<std::int64_t> start_ns, end_ns, correlation, external_id;
};

// What devices did; *category* is 0 for kernels, 1 for copies, 2 for memory sets.
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

// What events say about communication; the *comm* columns above count its rows, -1 for none.
struct CommColumns {
    std::vector<std::int32_t> collective, dtype, group_name, group_ranks;
    std::vector<std::int64_t> in_elements, out_elements, group_size, peer;
};

class DeviceReader : private Parts {
  public:
    // With *with_arguments*, what operators were called with is kept, as far as it was recorded.
    explicit DeviceReader(bool with_arguments = false)
        : document_("traceEvents", *this), with_arguments_(with_arguments) {}
    DeviceReader(const DeviceReader&) = delete;
    DeviceReader& operator=(const DeviceReader&) = delete;

    // Take the next bytes of the file. Raises FormatError.
    void feed(std::string_view bytes) { document_.feed(bytes); }
    // Take the end of the file. Raises FormatError.
    void finish() { document_.finish(); }

    EventColumns events;
    FrameColumns frames;
    CallColumns calls;
    WorkColumns works;
    SyncColumns syncs;
    CommColumns comms;
    Texts texts;
    // What operators were called with: the JSON array [shapes, types, values].
    Texts arguments;
    // The members that describe the trace, as JSON.
    std::map<std::string, std::string> about;
    // The number of the process that ran the operators, -1 if the trace does not say.
    std::int64_t process = -1;
    // How many events there are of each kind that is not read.
    std::map<std::string, std::int64_t, std::less<>> unread;

  private:
    struct Event;

    void element(Scanner& scanner) override;
    void member(std::string_view key, const Token& value) override;
    void keep(const Event& event);
    void keep_frame(const Event& event);
    std::int32_t comm_of(const Event& event);
    std::int32_t arguments_of(const Event& event);
    std::int32_t text_of(const Token& token) { return texts.number(token.text(scratch_)); }

    Document document_;
    bool with_arguments_;
    std::string scratch_;
};

}  // namespace chakrascope::converter
