#include "transport/page_copies.h"

#include <cstdint>

namespace kvrm {

void AddPageCopies(const KvGeometry& geometry, std::span<const Pager::PageCopy> copies,
                   TrainMerger& merger) {
  for (const Pager::PageCopy& copy : copies) {
    const KvGroupGeometry& group = geometry.groups[copy.kv_group];
    const CopySpace pool{.kind = CopySpaceKind::kPool, .kv_group = copy.kv_group};
    for (uint32_t part = 0; part < group.num_parts; ++part) {
      const uint64_t shift = part * group.part_stride_bytes();
      merger.Add({.source_offset = group.PageOffset(copy.source) + shift,
                  .destination_offset = group.PageOffset(copy.destination) + shift,
                  .bytes = group.part_page_bytes,
                  .source = pool,
                  .destination = pool,
                  .cause = CopyCause::kCopyOnWrite});
    }
  }
}

}  // namespace kvrm
