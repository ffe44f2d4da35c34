"""What nnU-Net's planner for ResEnc networks chooses for the data sets of data_sets.json.

    pip install nnunetv2 && python3 nnunet_plans.py [FOLDER_OF_HIPPOCAMPUS]

Prints JSON with an entry for each data set: spacing, window, for each axis pools and levels with a kernel of 1, batch. nnU-Net puts the coarsest axis first; the
numbers are in the order D, H, W of the data. The memory is its own measure, feature maps of 680 million numbers, which stands for 8 GB. FOLDER has
images/ and labels/ of NIfTI files; without it that data set is described by its median volume.
"""

import json
import os
import sys

import numpy
from nnunetv2.experiment_planning.experiment_planners.residual_unets.residual_encoder_unet_planners import ResEncUNetPlanner
from nnunetv2.preprocessing.resampling.default_resampling import compute_new_shape


def planner(extents, spacings, channels, classes):
    made = ResEncUNetPlanner.__new__(ResEncUNetPlanner)
    made.dataset_json = {'channel_names': {str(c): 'MRI' for c in range(channels)}, 'numTraining': len(extents),
                         'labels': {str(c): c for c in range(classes)}}
    made.dataset_fingerprint = {'spacings': spacings, 'shapes_after_crop': extents, 'median_relative_size_after_cropping': 1}
    made.anisotropy_threshold, made.overwrite_target_spacing, made.suppress_transpose = 3, None, False
    made.UNet_base_num_features, made.UNet_max_features_3d, made.UNet_max_features_2d = 32, 320, 512
    made.UNet_reference_val_3d, made.UNet_reference_val_2d = 680000000, 135000000
    made.UNet_reference_val_corresp_GB, made.UNet_vram_target_GB = 8, 8
    made.UNet_reference_val_corresp_bs_2d, made.UNet_reference_val_corresp_bs_3d = 12, 2
    made.UNet_featuremap_min_edge_length, made.UNet_min_batch_size, made.max_dataset_covered = 4, 2, 0.05
    made.UNet_blocks_per_stage_encoder, made.UNet_blocks_per_stage_decoder = (1, 3, 4, 6, 6, 6, 6, 6, 6), (1,) * 9
    from dynamic_network_architectures.architectures.unet import ResidualEncoderUNet
    made.UNet_class, made.preprocessor_name, made.plans_identifier = ResidualEncoderUNet, '', ''
    return made


def plan(extents, spacings, channels, classes):
    of = planner(extents, spacings, channels, classes)
    forward, backward = of.determine_transpose()
    spacing = of.determine_fullres_target_spacing()
    median = numpy.median([compute_new_shape(e, s, spacing) for s, e in zip(spacings, extents)], 0)
    chosen = of.get_plans_for_configuration(spacing[forward], median[forward], '', float(numpy.prod(median)) * len(extents), {})
    strides = numpy.array(chosen['architecture']['arch_kwargs']['strides'])
    pools = [int(numpy.log2(numpy.prod(strides[:, a]))) for a in range(3)]
    flat = [int(n) for n in (numpy.array(chosen['architecture']['arch_kwargs']['kernel_sizes']) == 1).sum(0)]
    return {'spacing': [round(float(x), 4) for x in spacing], 'median': [float(x) for x in median],
            'window': [int(chosen['patch_size'][i]) for i in backward], 'levels': len(strides), 'pools': [pools[i] for i in backward],
            'flat': [flat[i] for i in backward],
            'batch': int(chosen['batch_size'])}


def volumes(folder):
    import nibabel
    images = [nibabel.load(os.path.join(folder, 'images', name)) for name in sorted(os.listdir(os.path.join(folder, 'images')))]
    return [image.shape[2::-1] for image in images], [[float(x) for x in image.header.get_zooms()[2::-1]] for image in images]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, 'data_sets.json'), encoding='utf-8') as file:
        sets = json.load(file)
    plans = {}
    for name, each in sets.items():
        extents = [e for e in each['extents'] for _ in range(each['times'])]
        spacings = [s for s in each['spacings'] for _ in range(each['times'])]
        plans[name] = plan(extents, spacings, each['channels'], each['classes'])
    for folder in sys.argv[1:]:
        plans[folder] = plan(*volumes(folder), 1, 3)
    print('{\n' + ',\n'.join(f'  {json.dumps(name)}: {json.dumps(each)}' for name, each in plans.items()) + '\n}')


if __name__ == '__main__':
    main()
