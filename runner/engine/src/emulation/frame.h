// The header of a message on the wire. All machines of a cluster must have the same byte order.
#pragma once

#include <cstdint>

#include "transport.h"

namespace chakrascope::emulation {

struct Frame {
    std::uint32_t magic;
    std::uint32_t kind;
    std::uint64_t size;
    std::int64_t tag;
    std::uint64_t number;
    std::int32_t source;
    std::int32_t origin_rank;
    std::int32_t origin_node;
    std::uint32_t range;
};
static_assert(sizeof(Frame) == 48);

constexpr std::uint32_t kFrameMagic = 0x4D434843;  // "CHCM" in ASCII

inline Frame to_frame(const Header& header) {
    return {kFrameMagic,        static_cast<std::uint32_t>(header.kind),
            header.size,        header.tag,
            header.number,      header.source,
            header.origin_rank, header.origin_node,
            header.range};
}

// Return whether a frame is a valid frame of the rank `source`.
inline bool is_frame_of(const Frame& frame, std::int32_t source) {
    return frame.magic == kFrameMagic && frame.source == source &&
           frame.kind <= static_cast<std::uint32_t>(MessageKind::Request);
}

inline Header to_header(const Frame& frame) {
    return {frame.size,
            frame.tag,
            frame.number,
            frame.source,
            static_cast<MessageKind>(frame.kind),
            frame.origin_rank,
            frame.origin_node,
            frame.range};
}

}  // namespace chakrascope::emulation
